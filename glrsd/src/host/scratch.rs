//! Private temporary directories: one per session that runs something, below one per daemon.
//!
//! Owns: making them (0700, in a directory of this user's below the system's temporary one),
//! removing them without following links, and reclaiming what daemons that died left behind. Whose
//! directory is still in use is told by a lock on the directory itself, which its daemon holds for
//! life. Must not know sessions beyond their ids, nor what is put there.

use super::random;
use glrs_protocol::SessionId;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Attempts at removing a directory into which something may still be writing.
const ATTEMPTS: u32 = 5;

/// This daemon's part of the temporary directory. Nothing is made before a session needs it.
#[derive(Debug)]
pub struct Scratch {
    base: PathBuf,
    own: Mutex<Option<Own>>,
}

/// The daemon's directory, and the lock that says it lives.
#[derive(Debug)]
struct Own {
    dir: PathBuf,
    _lock: File,
}

impl Scratch {
    /// What lies below `base`, which is this user's alone.
    pub fn new(base: PathBuf) -> Arc<Self> {
        Arc::new(Self { base, own: Mutex::new(None) })
    }

    /// Removes what daemons left that are no more. Answers how many that were. A base that cannot
    /// be read, or is not ours, is left alone.
    pub fn reclaim(&self) -> usize {
        if check_own(&self.base).is_err() {
            return 0;
        }
        // Held while a daemon makes its directory as well: one without a lock is nobody's.
        let Ok(base) = locked(&self.base) else { return 0 };
        let Ok(found) = fs::read_dir(&self.base) else { return 0 };
        let mut count = 0;
        for path in found.flatten().map(|e| e.path()) {
            if check_own(&path).is_err() {
                continue;
            }
            let dead = File::open(&path).is_ok_and(|dir| dir.try_lock().is_ok());
            if dead && remove_tree(&path).is_ok() {
                count += 1;
            }
        }
        drop(base);
        count
    }

    /// A session's directory, made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made, or the place belongs to someone else.
    fn session(&self, id: &SessionId) -> io::Result<PathBuf> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        // A cleaner of temporary files may have taken it away.
        let dir = match own.take().filter(|o| o.dir.is_dir()) {
            Some(old) => own.insert(old).dir.clone(),
            None => own.insert(self.make_own()?).dir.clone(),
        };
        let path = dir.join(id.as_str());
        make_own_dir(&path)?;
        Ok(path)
    }

    fn make_own(&self) -> io::Result<Own> {
        make_own_dir(&self.base)?;
        let base = locked(&self.base)?;
        let dir = self.base.join(random::word());
        DirBuilder::new().mode(0o700).create(&dir)?;
        let lock = locked(&dir)?;
        drop(base);
        Ok(Own { dir, _lock: lock })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(own) = own {
            // What is left is reclaimed at the next start.
            let _ = remove_tree(&own.dir);
        }
    }
}

/// A session's private temporary directory: made when it is first asked for, removed with this.
#[derive(Debug)]
pub struct SessionTmp {
    scratch: Arc<Scratch>,
    id: SessionId,
    /// That of the session in whose directory this one's lies.
    within: Option<Arc<SessionTmp>>,
    /// How many lie in this one's: while there are any, it stays.
    guests: AtomicUsize,
    made: Mutex<Option<PathBuf>>,
}

impl SessionTmp {
    /// That of a session. Makes nothing yet.
    pub fn new(scratch: Arc<Scratch>, id: SessionId) -> Self {
        Self { scratch, id, within: None, guests: AtomicUsize::new(0), made: Mutex::new(None) }
    }

    /// That of a session whose directory lies in another one's, which goes only after it.
    pub fn within(outer: &Arc<Self>, id: SessionId) -> Self {
        outer.guests.fetch_add(1, Ordering::Relaxed);
        let (scratch, within) = (outer.scratch.clone(), Some(outer.clone()));
        Self { scratch, id, within, guests: AtomicUsize::new(0), made: Mutex::new(None) }
    }

    /// Its path; the directory is there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn path(&self) -> io::Result<PathBuf> {
        let path = match &self.within {
            Some(outer) => {
                let path = outer.path()?.join(self.id.as_str());
                make_own_dir(&path)?;
                path
            }
            None => self.scratch.session(&self.id)?,
        };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.clone());
        Ok(path)
    }

    /// Removes it, if it was made.
    pub fn remove(&self) {
        if self.guests.load(Ordering::Relaxed) > 0 {
            return;
        }
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(path) = made
            && let Err(e) = remove_tree(&path)
        {
            tracing::warn!(session = %self.id, error = %e, "a temporary directory could not be removed; the next start tries again");
        }
    }
}

impl Drop for SessionTmp {
    fn drop(&mut self) {
        self.remove();
        if let Some(outer) = &self.within {
            outer.guests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Opens a directory and waits for its lock, which goes when the file is closed.
fn locked(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    file.lock()?;
    Ok(file)
}

/// Whether a path is a directory of this user's, and no link to one.
fn check_own(path: &Path) -> io::Result<fs::Metadata> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{} is no directory of yours", path.display())));
    }
    Ok(meta)
}

/// Makes a directory that only this user can look into, or takes the one that is there.
fn make_own_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(e),
    }
    let meta = check_own(path)?;
    if meta.mode() & 0o777 != 0o700 {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes a tree. Links are removed, not followed; directories without permissions (as some tools
/// leave their caches) are opened first.
fn remove_tree(path: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = match fs::remove_dir_all(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other,
        };
        match &last {
            Ok(()) => return last,
            Err(e) if e.kind() == ErrorKind::PermissionDenied => open_up(path),
            // Something was still writing into it.
            Err(_) => {}
        }
    }
    last
}

fn open_up(path: &Path) {
    let mut todo = vec![path.to_path_buf()];
    while let Some(dir) = todo.pop() {
        if !fs::symlink_metadata(&dir).is_ok_and(|m| m.is_dir()) {
            continue;
        }
        let _ = fs::set_permissions(&dir, Permissions::from_mode(0o700));
        if let Ok(entries) = fs::read_dir(&dir) {
            todo.extend(entries.flatten().map(|e| e.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn id(text: &str) -> SessionId {
        text.parse().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_directory_is_made_late_is_private_and_goes_with_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        let scratch = Scratch::new(base.clone());
        let tmp = SessionTmp::new(scratch.clone(), id("3f9a1c2b"));
        assert!(!base.exists());
        let path = tmp.path().unwrap();
        assert!(path.starts_with(&base) && path.ends_with("3f9a1c2b"));
        assert_eq!((mode(&base), mode(&path)), (0o700, 0o700));
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        symlink(&outside, path.join("link")).unwrap();
        fs::create_dir(path.join("closed")).unwrap();
        fs::write(path.join("closed/f"), "x").unwrap();
        fs::set_permissions(path.join("closed"), Permissions::from_mode(0o000)).unwrap();
        drop(tmp);
        assert!(!path.exists() && outside.join("kept").exists());
        drop(scratch);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
    }

    #[test]
    fn one_that_lies_in_another_goes_first_whichever_is_closed_first() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(dir.path().join("b"));
        let outer = Arc::new(SessionTmp::new(scratch, id("3f9a1c2b")));
        let inner = SessionTmp::within(&outer, id("cafe0001"));
        let (inside, outside) = (inner.path().unwrap(), outer.path().unwrap());
        assert_eq!((inside.parent(), mode(&inside)), (Some(outside.as_path()), 0o700));
        outer.remove();
        drop(outer);
        assert!(inside.is_dir());
        drop(inner);
        assert!(!outside.exists());
    }

    #[test]
    fn what_the_dead_left_is_reclaimed_and_the_living_keep_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("b");
        let living = Scratch::new(base.clone());
        let kept = living.session(&id("aaaaaaaa")).unwrap();
        let left = base.join("0123456789ab");
        fs::create_dir_all(left.join("bbbbbbbb/deep")).unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, base.join("link")).unwrap();
        fs::write(base.join("file"), "x").unwrap();
        let other = Scratch::new(base.clone());
        assert_eq!(other.reclaim(), 1);
        assert!(!left.exists() && kept.exists() && outside.exists() && base.join("link").exists());
        // The one that lives finds its own again even when it was taken away.
        fs::remove_dir_all(kept.parent().unwrap()).unwrap();
        assert!(living.session(&id("aaaaaaaa")).unwrap().is_dir());
    }

    #[test]
    fn a_base_that_is_a_link_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (target, base) = (dir.path().join("t"), dir.path().join("b"));
        fs::create_dir(&target).unwrap();
        fs::create_dir(target.join("precious")).unwrap();
        symlink(&target, &base).unwrap();
        let scratch = Scratch::new(base);
        assert_eq!(scratch.reclaim(), 0);
        assert!(SessionTmp::new(scratch, id("3f9a1c2b")).path().is_err());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
    }
}
