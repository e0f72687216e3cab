//! Which trees a copy goes between, and which names its files get: what `cp` and `mv` share.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use conquest::Errno;

use super::{Job, Options, Side};
use crate::place::{Inside, Place};
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::session::Session;
use crate::tree::{FileType, Host, Tree};

/// Symbolic links that are followed to where a copy goes.
const LINKS_MAX: usize = 40;

/// Where copies go.
pub(crate) enum To {
    /// Into this directory, under their own names.
    Directory(Place),
    /// Under this name.
    Name(Place),
}

impl Place {
    /// The path in its tree.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Place::Host(path) => path.as_os_str().as_bytes(),
            Place::Inside(inside) => &inside.path,
        }
    }

    /// The same tree's place at `path`.
    pub(crate) fn at(&self, path: Vec<u8>) -> Place {
        match self {
            Place::Host(_) => Place::Host(PathBuf::from(
                <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path),
            )),
            Place::Inside(inside) => Place::Inside(Inside { store: inside.store.clone(), path }),
        }
    }

    /// The directory it is in, and its name there.
    ///
    /// # Errors
    /// A rule: it has no name of its own.
    pub(crate) fn above(&self) -> Result<(Place, Vec<u8>)> {
        let name = self.last_name();
        let name = name.ok_or_else(|| Reason::rule("has no name of its own: end it in one"))?;
        let path = self.path();
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let above = path.get(..end.saturating_sub(name.len())).unwrap_or_default();
        let above = if above.is_empty() { b".".to_vec() } else { above.to_vec() };
        Ok((self.at(above), name))
    }
}

/// What one tree does with another one, whichever they are.
pub(crate) trait Visit {
    /// Called with the two trees; `same` if they are one.
    fn visit<S: Tree, T: Tree>(self, source: &S, target: &T, same: bool) -> Result<()>;
}

/// Calls `visit` with the trees of two places.
///
/// # Errors
/// A rule if both are on the host, and what `visit` says.
pub(crate) fn with_trees(
    session: &mut Session,
    source: &Place,
    target: &Place,
    visit: impl Visit,
) -> Result<()> {
    let missing = || Reason::rule("the store is not attached");
    match (source, target) {
        (Place::Host(_), Place::Host(_)) => {
            Err(Reason::rule("both are on the host (use the system's own tool, or STORE:/path)"))
        }
        (Place::Host(_), Place::Inside(inside)) => {
            let at = session.open(&inside.store)?;
            visit.visit(&Host, &session.files(at).ok_or_else(missing)?, false)
        }
        (Place::Inside(inside), Place::Host(_)) => {
            let at = session.open(&inside.store)?;
            visit.visit(&session.files(at).ok_or_else(missing)?, &Host, false)
        }
        (Place::Inside(one), Place::Inside(other)) => {
            let (one, other) = (session.open(&one.store)?, session.open(&other.store)?);
            let source = session.files(one).ok_or_else(missing)?;
            let target = session.files(other).ok_or_else(missing)?;
            visit.visit(&source, &target, one == other)
        }
    }
}

/// Whether `place` is a directory, links followed.
pub(crate) fn is_directory(session: &mut Session, place: &Place) -> Result<bool> {
    fn ask<T: Tree>(tree: &T, path: &[u8]) -> Result<bool> {
        match tree.find(path, true).and_then(|node| tree.meta(&node)) {
            Err(reason) if reason.is(Errno::ENOENT) => Ok(false),
            meta => Ok(meta?.is_directory()),
        }
    }
    match place {
        Place::Host(path) => ask(&Host, path.as_os_str().as_bytes()),
        Place::Inside(inside) => {
            let at = session.open(&inside.store)?;
            let files =
                session.files(at).ok_or_else(|| Reason::rule("the store is not attached"))?;
            ask(&files, &inside.path)
        }
    }
}

/// Copies of some files, all of one tree.
pub(crate) struct Copies<'a> {
    pub(crate) sources: &'a [Place],
    pub(crate) to: &'a To,
    /// Whether links that sources name are followed.
    pub(crate) follow: bool,
    pub(crate) options: Options,
    pub(crate) report: &'a Report,
}

impl Visit for Copies<'_> {
    fn visit<S: Tree, T: Tree>(self, source: &S, target: &T, same: bool) -> Result<()> {
        let report = self.report;
        let (directory, name) = match self.to {
            To::Directory(place) => (place.clone(), None),
            To::Name(place) => {
                let place = match self.sources.first() {
                    Some(first) => self.followed(source, target, first, place)?,
                    None => place.clone(),
                };
                let (above, name) = place.above()?;
                (above, Some(name))
            }
        };
        let found = target.find(directory.path(), true);
        let node =
            found.map_err(|reason| Reason::rule(format!("{}: {reason}", directory.label())))?;
        let side = Side { tree: target, node, label: directory.plain() };
        let options = Options { same_tree: same, ..self.options };
        let job = Job::new(source, side, options, report);
        for place in self.sources {
            let found = source.find(place.path(), self.follow);
            let Some(node) = report.take(place.label(), found) else {
                continue;
            };
            let own = name.clone().or_else(|| place.last_name());
            let checked = own.ok_or_else(|| Reason::rule("has no name of its own to be copied to"));
            let checked = checked.and_then(|own| {
                let is_directory = source.meta(&node)?.is_directory();
                if matches!(self.to, To::Name(place) if place.has_slash()) && !is_directory {
                    return Err(Errno::ENOTDIR.into());
                }
                if same && is_directory {
                    refuse_within(target, &node_id(source, &node)?, directory.path(), place, &own)?;
                }
                Ok(own)
            });
            if let Some(own) = report.take(place.label(), checked) {
                job.add(node, &place.plain(), &own);
            }
        }
        job.run().map(drop)
    }
}

impl Copies<'_> {
    /// Where a copy really goes: a link that stands there is followed, as other tools do, unless it
    /// is to be replaced by a link.
    fn followed<S: Tree, T: Tree>(
        &self,
        source: &S,
        target: &T,
        first: &Place,
        place: &Place,
    ) -> Result<Place> {
        let is_file = source
            .find(first.path(), self.follow)
            .and_then(|node| source.meta(&node))
            .is_ok_and(|meta| meta.is_regular());
        let mut place = place.clone();
        for _ in 0..LINKS_MAX {
            let found = target.find(place.path(), false);
            let Ok(node) = found else {
                return Ok(place);
            };
            if !is_file || target.meta(&node)?.file_type != FileType::Symlink {
                return Ok(place);
            }
            let link = target.target(&node)?;
            let (above, _) = place.above()?;
            let next = if link.starts_with(b"/") { place.at(link) } else { above.join(&link) };
            if target.find(next.path(), false).is_err() {
                let text = format!("not writing through dangling symlink {}", place.label());
                return Err(Reason::Rule(text));
            }
            place = next;
        }
        Err(Errno::ELOOP.into())
    }
}

fn node_id<T: Tree>(tree: &T, node: &T::Node) -> Result<(u64, u64)> {
    Ok(tree.meta(node)?.id)
}

/// Refuses to copy the directory `outer` to a place inside itself.
fn refuse_within<T: Tree>(
    tree: &T,
    outer: &(u64, u64),
    directory: &[u8],
    source: &Place,
    name: &[u8],
) -> Result<()> {
    let mut node = tree.find(directory, true)?;
    let mut id = node_id(tree, &node)?;
    loop {
        if id == *outer {
            let inner = source.at(directory.to_vec()).join(name).label();
            return Err(Reason::rule(format!("cannot copy a directory into itself, {inner}")));
        }
        let above = tree.child(&node, b"..")?;
        let above_id = node_id(tree, &above)?;
        if above_id == id {
            return Ok(());
        }
        (node, id) = (above, above_id);
    }
}
