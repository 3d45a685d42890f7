//! What the process itself uses, as the system tells it, under the names that every dashboard knows.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// The unit of CPU time in `/proc`: Linux shows it in hundredths of a second on every machine.
const TICKS: f64 = 100.0;

/// Reads `/proc/self`. Where there is none, there are no such metrics.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
        if let Some(seconds) = read("stat").as_deref().and_then(cpu_seconds) {
            let counter = ConstCounter::new(seconds);
            let help = "CPU time used, in user and system mode";
            counter.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, counter.metric_type())?)?;
        }
        if let Some(bytes) = read("status").as_deref().and_then(resident_bytes) {
            let gauge = ConstGauge::new(bytes);
            let help = "Memory that is resident";
            gauge.encode(encoder.encode_descriptor(
                "process_resident_memory_bytes",
                help,
                None,
                gauge.metric_type(),
            )?)?;
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            let gauge = ConstGauge::new(i64::try_from(files.count()).unwrap_or(i64::MAX));
            let help = "Files and connections that are open";
            gauge.encode(encoder.encode_descriptor("process_open_fds", help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// The user and system time of `/proc/PID/stat`. The program's name comes before them and may hold spaces and brackets.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("42 (short) S 1"), None);
        assert_eq!(resident_bytes("Name:\tknoll\nVmRSS:\t    2048 kB\n"), Some(2 * 1024 * 1024));
        assert_eq!(resident_bytes("Name:\tknoll\n"), None);
    }
}
