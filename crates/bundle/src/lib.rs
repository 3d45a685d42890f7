//! The files of a module as one archive: tar, packed with zstd, named after its content and kept in ConfigMaps.
//!
//! *Guarantees.* The same files give the same digest, whoever packs them, where and when. A bundle that is found is
//! complete, and what [`fetch`] returns has the digest that was asked for. Nothing that [`unpack`] writes lies outside of
//! its folder.
//!
//! ```text
//! pack(files) | pack_folder(path)  ->  Bundle  -> store(client, namespace, bundle)  ->  fetch(client, namespace, digest)
//! ```
//!
//! A bundle has no owner: Runs, Workspaces and Stacks refer to it by its digest, and [`sweep`] deletes those that nothing
//! has referred to for a while.

mod config_maps;
mod folder;
mod pack;
mod place;
mod said;
mod source;
mod sweep;
mod unpack;

pub use config_maps::{StoreError, digest_of, fetch, is_stored, store, store_again, store_with};
pub use folder::{FolderError, pack_folder};
pub use pack::{Bundle, File, Files, LARGEST, PackError, digest, pack, pack_texts};
pub use place::{INPUT_FILE, MODULE_FILE, module_path, pack_at};
pub use said::said;
pub use source::{Origin, SourceError, of_source};
pub use sweep::{UNUSED_FOR, sweep};
pub use unpack::{Error as UnpackError, inside, unpack, unpack_tar};
