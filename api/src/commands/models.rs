//! `ellect models` lists trained models, and undoes the installation of one.

use anyhow::Result;
use clap::Subcommand;
use ellect::Precision;
use ellect::device;
use ellect::model::Purpose;
use ellect_training::guard::Verdict;

use super::{Answer, Home};
use crate::arguments::Form;
use crate::installed::Installed;
use crate::output::{note, print, print_json, table};

/// The operations on models.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models that ship and those of this user, with the comparison that decided about each
    #[command(after_help = LIST_JSON)]
    List {
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Return to the model that was in use before the latest installation
    Rollback {
        /// Device of the model
        #[arg(long, default_value = "cpu", value_name = "NAME")]
        device: String,
        /// Precisions of the models
        #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
        precision: Vec<Precision>,
    },
}

const LIST_JSON: &str = "\
--json prints a list: id, device, precision, several, trained_at (seconds since 1970, or null), matrices, state
(in use, kept or ships), and verdict (null for what ships): before and after, best/chosen with the
model that was in use and with this one, worst_before and worst_after, on so many matrices";

/// Runs the operation.
pub fn run(command: &ModelsCommand, home: &Home) -> Result<Answer> {
    match command {
        ModelsCommand::List { form } => list(*form, home),
        ModelsCommand::Rollback { device, precision } => rollback(device, precision, home),
    }
}

fn list(form: Form, home: &Home) -> Result<Answer> {
    let rows = Installed::of(&home.data).list()?;
    if form.json {
        print_json(&rows)?;
        return Ok(Answer::Yes);
    }
    let shown = rows.iter().map(|row| {
        let judged = |of: fn(&Verdict) -> f64| {
            row.verdict.as_ref().map_or("-".into(), |verdict| format!("{:.3}", of(verdict)))
        };
        vec![
            row.name.id.clone(),
            row.name.device.clone(),
            Purpose { precision: row.precision, several: row.several }.to_string(),
            row.name.day().unwrap_or_else(|| "-".into()),
            row.name.matrices.map_or("-".into(), |matrices| matrices.to_string()),
            row.state.to_string(),
            judged(|verdict| verdict.before),
            judged(|verdict| verdict.after),
        ]
    });
    let head = ["model", "device", "products", "trained", "matrices", "state", "before", "after"];
    print(&table(&head, shown.collect(), &[0, 1, 2, 3, 5]))?;
    Ok(Answer::Yes)
}

fn rollback(name: &str, precisions: &[Precision], home: &Home) -> Result<Answer> {
    let device = device::find_in(name, &home.data)?.name;
    let installed = Installed::of(&home.data);
    let mut answer = Answer::No;
    for &precision in precisions {
        match installed.rollback(&device, precision)? {
            Some((left, now)) => {
                let now = now.map_or("the model that ships".into(), |id| format!("model {id}"));
                print(&format!("{device} in {precision}: {now} predicts again, {left} is kept\n"))?;
                answer = Answer::Yes;
            }
            None => note(&format!("{device} in {precision}: no model was installed")),
        }
    }
    Ok(answer)
}
