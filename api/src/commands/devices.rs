//! `ellect devices` lists the devices that ellect can choose for.

use std::path::Path;

use anyhow::Result;
use ellect::device;
use ellect::units::bytes;

use super::Answer;
use crate::arguments::Form;
use crate::output::{note, print, print_json, spinner, table, wrap};

/// Lists the devices, after measuring this machine if `probe` is set.
pub fn run(probe: bool, form: Form, data: &Path) -> Result<Answer> {
    if probe {
        let measuring = spinner("measuring this machine");
        let path = ellect::measure::probe().save(data)?;
        measuring.finish_and_clear();
        note(&format!("saved {}", path.display()));
    }
    let mut devices = device::all_in(data)?;
    let here = ellect::measure::gpus()?;
    for (_, gpu) in &here {
        if devices.iter().all(|device| device.name != gpu.name) {
            devices.push(gpu.clone());
        }
    }
    if form.json {
        print_json(&devices)?;
        return Ok(Answer::Yes);
    }
    let rows = devices.iter().map(|device| {
        vec![
            device.name.clone(),
            device.title.clone(),
            device.processors.to_string(),
            format!("{:.0} GB/s", device.read_gbps),
            bytes(device.cache_bytes),
            bytes(device.memory_bytes),
        ]
    });
    let head = ["device", "title", "processors", "reads", "cache", "memory"];
    print(&table(&head, rows.collect(), &[0, 1]))?;
    print(&format!(
        "\nKnown by their data sheets, not measured: {}.\n",
        device::sheet_names().join(", ")
    ))?;
    for (handle, gpu) in &here {
        print(&format!("\n{handle} is {}.\n", gpu.name))?;
    }
    for device in &devices {
        print(&format!("\n{}", wrap(&format!("{}: {}", device.name, device.source))))?;
    }
    Ok(Answer::Yes)
}
