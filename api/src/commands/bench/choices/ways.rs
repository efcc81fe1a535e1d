//! Choices by `ellect recommend`, of this program and of another build of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use ellect::format::Candidate;

/// A way to choose a candidate for a matrix in a file.
pub struct Way {
    name: String,
    program: PathBuf,
    /// Folder of profiles and models.
    data: PathBuf,
    effort: &'static str,
}

impl Way {
    /// Returns the name for tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the choice for `spmvs` products with the matrix in `file`. Measurements of earlier
    /// answers are not used.
    pub fn choose(&self, file: &Path, spmvs: u64) -> Result<Candidate> {
        let spmvs = spmvs.to_string();
        let file = file.to_string_lossy();
        let options = ["--device", "cpu", "--precision", "f64", "--json", "--no-wisdom"];
        let own = ["--spmvs", &spmvs, "--effort", self.effort];
        let words: Vec<&str> = ["recommend", &file].into_iter().chain(options).chain(own).collect();
        let text = output(&self.program, &self.data, &words)?;
        let answer: serde_json::Value =
            serde_json::from_str(&text).context("reading the answer")?;
        let choice = answer.get("choice").and_then(|choice| choice.as_str());
        Ok(choice.with_context(|| format!("no choice in {text}"))?.parse()?)
    }
}

/// Returns the ways of this program, then those of the program `before`. Folders of profiles are
/// made in `folder`; `data` is this user's folder.
pub fn all(folder: &Path, data: &Path, before: Option<&Path>) -> Result<Vec<Way>> {
    let this = std::env::current_exe().context("finding this program")?;
    let mut ways = of_program(&this, "", &folder.join("this"))?;
    if data.join("models").is_dir() {
        let name = format!("model of {}", data.display());
        let (program, data) = (this, data.to_path_buf());
        ways.push(Way { name, program, data, effort: "predict" });
    }
    if let Some(before) = before {
        ways.extend(of_program(before, "before: ", &folder.join("before"))?);
    }
    Ok(ways)
}

/// Returns the ways that a program offers without data of a user.
fn of_program(program: &Path, prefix: &str, folder: &Path) -> Result<Vec<Way>> {
    let (shipped, probed) = (folder.join("shipped"), folder.join("probed"));
    for made in [&shipped, &probed] {
        std::fs::create_dir_all(made).context("making a folder of profiles")?;
    }
    output(program, &probed, &["devices", "--probe"])?;
    let way = |name: &str, data: &Path, effort| {
        let name = format!("{prefix}{name}");
        Way { name, program: program.to_path_buf(), data: data.to_path_buf(), effort }
    };
    Ok(vec![
        way("shipped model and profile", &shipped, "predict"),
        way("shipped model, probed profile", &probed, "predict"),
        way("effort measure", &shipped, "measure"),
    ])
}

/// Runs a program with a data folder, and returns what it prints.
fn output(program: &Path, data: &Path, words: &[&str]) -> Result<String> {
    let context = || format!("running {}", program.display());
    let ran = Command::new(program).args(words).arg("--data").arg(data).output();
    let ran = ran.with_context(context)?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        bail!("{} {} failed: {}", program.display(), words.join(" "), said.trim());
    }
    String::from_utf8(ran.stdout).with_context(context)
}
