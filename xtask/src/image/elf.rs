//! Whether an executable needs anything but the kernel: an image that has nothing else in it can run only such.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};

/// More than the headers of any linker's output.
const HEAD: u64 = 64 * 1024;
/// The program header that names the dynamic loader.
const PT_INTERP: u32 = 3;

/// Fails unless the file is an executable that needs no dynamic loader.
pub fn check_static(path: &Path) -> anyhow::Result<()> {
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .with_context(|| format!("cannot read {}", path.display()))?;
    match interpreter(&head) {
        Some(false) => Ok(()),
        Some(true) => bail!("{} is linked dynamically: it would not run in an image of its own", path.display()),
        None => bail!("{} is not an executable of 64-bit Linux", path.display()),
    }
}

/// Whether the program headers name a loader; nothing for what is no 64-bit little-endian ELF file.
fn interpreter(head: &[u8]) -> Option<bool> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let offset = usize::try_from(u64::from_le_bytes(head.get(32..40)?.try_into().ok()?)).ok()?;
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?)));
    let (size, count) = (half(54)?, half(56)?);
    for index in 0..count {
        let at = offset.checked_add(index * size)?;
        if u32::from_le_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&u16::try_from(kinds.len()).unwrap_or(0).to_le_bytes());
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_loader_makes_it_dynamic() {
        assert_eq!(interpreter(&elf(&[1, 2, 6])), Some(false));
        assert_eq!(interpreter(&elf(&[6, PT_INTERP, 1])), Some(true));
        assert_eq!(interpreter(&elf(&[1, 1])[..100]), None, "cut off");
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
    }
}
