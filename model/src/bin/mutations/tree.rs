//! A copy of the repository, in which rules are broken.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use model::mutations::Mutation;

/// The copy, and where its programs are built. Not where the repository's own are built: cargo would take one for the other.
pub struct Tree {
    pub root: PathBuf,
    pub target: PathBuf,
    /// Of all its files.
    pub digest: u64,
}

/// A file that is restored when this is dropped.
pub struct Changed {
    file: PathBuf,
    before: String,
}

impl Drop for Changed {
    fn drop(&mut self) {
        // If this fails, the next copy restores it.
        let _ = fs::write(&self.file, &self.before);
    }
}

impl Tree {
    /// Copies the files that git knows, or would add, to a folder below `target`. Files that are the same already are left
    /// alone, because cargo goes by the time of their last change.
    pub fn copy() -> io::Result<Self> {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let below = from.join("target/mutations");
        let root = below.join("tree");
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listed = Command::new("git").args(list).current_dir(&from).output()?;
        if !listed.status.success() {
            return Err(io::Error::other("git does not list the files"));
        }
        let mut digest = DefaultHasher::new();
        for file in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            let (from, to) = (from.join(file), root.join(file));
            let Ok(wanted) = fs::read(&from) else { continue };
            (file, &wanted).hash(&mut digest);
            if fs::read(&to).ok().as_ref() != Some(&wanted) {
                fs::create_dir_all(to.parent().unwrap_or(&root))?;
                fs::write(&to, wanted)?;
                fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
            }
        }
        Ok(Self {
            root: root.canonicalize()?,
            target: below.canonicalize()?.join("target"),
            digest: digest.finish(),
        })
    }

    /// Breaks a rule, until the returned value is dropped.
    pub fn change(&self, mutation: &Mutation) -> io::Result<Changed> {
        let before = mutation.apply(&self.root)?;
        Ok(Changed { file: self.root.join(&mutation.file), before })
    }
}
