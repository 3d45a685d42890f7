//! The files of a module as one archive: tar, compressed with zstd, named by its digest. This crate is the format only:
//! `knoll-storage` stores bundles in the cluster.
//!
//! *Guarantees.* The same files give the same digest, whoever packs them, where and when. Nothing that [`unpack`] writes
//! lies outside of its folder.

mod folder;
mod pack;
mod place;
mod unpack;

pub use folder::{FolderError, pack_folder};
pub use pack::{Bundle, File, Files, LARGEST, PackError, digest_of, pack, pack_texts};
pub use place::{MODULE_FILE, module_path, pack_at};
pub use unpack::{Error as UnpackError, inside, unpack, unpack_tar};
