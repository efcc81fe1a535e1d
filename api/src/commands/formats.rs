//! `ellect formats` lists the storage formats.

use anyhow::Result;
use ellect::format::{FORMATS, Param, Value};
use serde_json::json;

use super::Answer;
use crate::arguments::Form;
use crate::output::{print, print_json};

/// Prints every format with its parameters.
pub fn run(form: Form) -> Result<Answer> {
    if form.json {
        let formats = FORMATS.iter().map(|format| {
            let params = format.params.iter().map(|param| {
                json!({
                    "name": param.name,
                    "doc": param.doc,
                    "values": param.values,
                    "default": param.values[0],
                    "gpu": param.gpu,
                    "host": param.host,
                })
            });
            json!({
                "name": format.name,
                "title": format.title,
                "suits": format.suits,
                "source": format.source,
                "parameters": params.collect::<Vec<_>>(),
            })
        });
        print_json(&formats.collect::<Vec<_>>())?;
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
