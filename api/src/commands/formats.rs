//! `ellect formats` lists the storage formats.

use anyhow::Result;
use ellect::format::{FORMATS, Param, Value};

use super::Answer;
use crate::arguments::Form;
use crate::output::{print, print_json};
use crate::views;

/// Prints every format with its parameters.
pub fn run(form: Form) -> Result<Answer> {
    if form.json {
        print_json(&views::formats())?;
        return Ok(Answer::Yes);
    }
    let mut text = String::new();
    for format in FORMATS {
        text += &format!("{}  {}\n", format.name, format.title);
        text += &format!("    for {}\n", format.suits);
        for param in format.params {
            text += &format!("    {}={}  {}\n", param.name, values(param), param.doc);
        }
        text += &format!("    {}\n\n", format.source);
    }
    print(text.trim_end_matches('\n'))?;
    print("\n")?;
    Ok(Answer::Yes)
}

/// Returns the values of a parameter separated by `|`, the default first.
fn values(param: &Param) -> String {
    param.values.iter().map(Value::to_string).collect::<Vec<_>>().join("|")
}
