//! Paths and hosts in the form that rules can match.
//!
//! Cedar cannot ask "is any of these paths under `infra`?": it has no loops. So the answer is prepared: each path with
//! every directory above it, and the deepest directory that holds them all. Paths come resolved; what is done here is
//! lexical, and never touches a file system.

use palyra_protocol::Facets;
use std::collections::BTreeSet;

/// The deepest path that is taken apart, as deep as one in a workspace can be. Deeper ones are refused, so that no rule
/// is silently blind to them.
pub(crate) const MAX_DEPTH: usize = 128;

/// A path too deep to be taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a path has more than {MAX_DEPTH} components")]
pub(crate) struct TooDeep;

/// Refuses a call with a path that is too deep, whatever its rules look at: all questions about it get the same answer.
pub(crate) fn check(facets: &Facets) -> Result<(), TooDeep> {
    let Facets { paths_read, paths_written, trees_read, .. } = facets;
    let mut deep = [paths_read, paths_written, trees_read].into_iter().flatten();
    // Most paths are far from it, and need not be taken apart to know that.
    deep.try_for_each(|path| match path.matches('/').count() {
        0..MAX_DEPTH => Ok(()),
        _ => components(path).map(drop),
    })
}

/// A path as components; the first is `.` or `/`, whichever it starts from.
fn components(path: &str) -> Result<Vec<&str>, TooDeep> {
    let absolute = path.starts_with('/');
    let mut parts = vec![if absolute { "/" } else { "." }];
    for part in path.split('/') {
        match part {
            "" | "." => {}
            // A `..` that stays is one that leaves the start; it must stay visible.
            ".." if parts.len() > 1 && parts.last() != Some(&"..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    // The start is no component of its own.
    if parts.len() > MAX_DEPTH + 1 { Err(TooDeep) } else { Ok(parts) }
}

fn join(parts: &[&str]) -> String {
    match parts {
        [] => String::new(),
        [start] => (*start).to_owned(),
        ["/", rest @ ..] => format!("/{}", rest.join("/")),
        [_, rest @ ..] => rest.join("/"),
    }
}

/// Every path, and every directory above it.
pub(crate) fn under(paths: &[String]) -> Result<BTreeSet<String>, TooDeep> {
    let mut all = BTreeSet::new();
    for path in paths {
        let parts = components(path)?;
        // From the deepest up: once a directory is known, so is everything above it.
        for n in (1..=parts.len()).rev() {
            if !all.insert(join(&parts[..n])) {
                break;
            }
        }
    }
    Ok(all)
}

/// Those of the given places that lie beneath one of these directories.
pub(crate) fn within<'p>(
    trees: &[String],
    places: &'p [String],
) -> Result<impl Iterator<Item = &'p str> + use<'p>, TooDeep> {
    let mut found = Vec::new();
    for tree in trees {
        let tree = components(tree)?;
        for place in places {
            // What is too deep to be a path, or leaves the tree again, names nothing in it.
            let below = components(place).is_ok_and(|parts| parts.starts_with(&tree) && !parts.contains(&".."));
            if below {
                found.push(place.as_str());
            }
        }
    }
    Ok(found.into_iter())
}

/// The deepest directory, or the one path, that holds all of them. Nothing holds both relative and absolute paths.
pub(crate) fn root(paths: &[String]) -> Result<Option<String>, TooDeep> {
    let mut common: Option<Vec<&str>> = None;
    for path in paths {
        let parts = components(path)?;
        common = Some(match common {
            None => parts,
            Some(mut before) => {
                let same = before.iter().zip(&parts).take_while(|(a, b)| a == b).count();
                before.truncate(same);
                before
            }
        });
    }
    Ok(common.map(|parts| join(&parts)))
}

/// A host as a call names it, `host` or `host:port`, in one spelling: the host alone, and the port if there is one.
fn parts(named: &str) -> (String, Option<&str>) {
    let (host, port) = match named.rsplit_once(':') {
        // An IPv6 address has colons of its own, and brackets around them where a port follows.
        Some((host, port))
            if !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!host.contains(':') || host.starts_with('[') && host.ends_with(']')) =>
        {
            (host, Some(port))
        }
        _ => (named, None),
    };
    (host.trim_end_matches('.').to_ascii_lowercase(), port)
}

/// Every host, without its port: a rule about a host is a rule about all of its ports.
pub(crate) fn hosts(named: &[String]) -> BTreeSet<String> {
    named.iter().map(|named| parts(named).0).collect()
}

/// Every host with its port, `host:443`; `host:*` where the call does not say which.
pub(crate) fn endpoints(named: &[String]) -> BTreeSet<String> {
    let endpoint = |named: &String| {
        let (host, port) = parts(named);
        format!("{host}:{}", port.unwrap_or("*"))
    };
    named.iter().map(endpoint).collect()
}

/// Every host, and every domain above it. An address has none.
pub(crate) fn domains(named: &[String]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for host in hosts(named) {
        if host.parse::<std::net::IpAddr>().is_err() && !host.starts_with('[') {
            let mut rest = host.as_str();
            while let Some((_, parent)) = rest.split_once('.') {
                all.insert(parent.to_owned());
                rest = parent;
            }
        }
        all.insert(host);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_the_places_below_it_and_no_others() {
        let places: Vec<String> = [".ssh", "src/keys", "srcs", "/etc", "..", "."].map(str::to_owned).to_vec();
        let within = |tree: &str| within(&[tree.to_owned()], &places).unwrap().collect::<Vec<_>>();
        assert_eq!(within("."), [".ssh", "src/keys", "srcs", "."]);
        assert_eq!(within("src"), ["src/keys"]);
        assert_eq!(within("src/keys"), ["src/keys"]);
        assert!(within("docs").is_empty());
    }

    fn set(paths: &[&str]) -> Vec<String> {
        let paths: Vec<_> = paths.iter().map(|p| (*p).to_owned()).collect();
        under(&paths).unwrap().into_iter().collect()
    }

    fn common(paths: &[&str]) -> Option<String> {
        let paths: Vec<_> = paths.iter().map(|p| (*p).to_owned()).collect();
        root(&paths).unwrap()
    }

    #[test]
    fn a_path_brings_its_directories() {
        assert_eq!(set(&["infra/prod/main.tf"]), [".", "infra", "infra/prod", "infra/prod/main.tf"]);
        assert_eq!(set(&["/etc/passwd"]), ["/", "/etc", "/etc/passwd"]);
        assert_eq!(set(&["."]), ["."]);
        assert_eq!(set(&["a//./b/"]), [".", "a", "a/b"]);
    }

    #[test]
    fn dots_cannot_hide_a_directory() {
        assert_eq!(set(&["src/../infra/x"]), [".", "infra", "infra/x"]);
        assert_eq!(set(&["../../etc"]), [".", "..", "../..", "../../etc"]);
        assert_eq!(set(&["/../etc"]), ["/", "/etc"]);
    }

    #[test]
    fn a_path_is_as_deep_as_one_of_a_workspace_and_no_deeper() {
        for (depth, fits) in [(64, true), (MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
            let path = vec!["a"; depth].join("/");
            let facets = Facets { paths_read: vec![path.clone()], ..Facets::default() };
            assert_eq!((under(&[path]).is_ok(), check(&facets).is_ok()), (fits, fits), "{depth}");
        }
    }

    #[test]
    fn the_root_holds_every_path() {
        assert_eq!(common(&[]), None);
        assert_eq!(common(&["src/a.rs"]), Some("src/a.rs".to_owned()));
        assert_eq!(common(&["src/a.rs", "src/b/c.rs"]), Some("src".to_owned()));
        assert_eq!(common(&["src/a.rs", "srcs/a.rs"]), Some(".".to_owned()));
        assert_eq!(common(&["src/a.rs", "/etc/passwd"]), Some(String::new()));
    }

    #[test]
    fn a_host_brings_its_domains() {
        let hosts = ["Static.Packages.example:443".to_owned(), "10.0.0.1".to_owned(), "[::1]:80".to_owned()];
        let all: Vec<_> = domains(&hosts).into_iter().collect();
        assert_eq!(all, ["10.0.0.1", "[::1]", "example", "packages.example", "static.packages.example"]);
    }

    #[test]
    fn hosts_have_no_port_and_endpoints_always_have_one() {
        for (named, host, endpoint) in [
            ("a.example:443", "a.example", "a.example:443"),
            ("A.Example.", "a.example", "a.example:*"),
            ("a.example.:80", "a.example", "a.example:80"),
            ("10.0.0.1:22", "10.0.0.1", "10.0.0.1:22"),
            ("[::1]:80", "[::1]", "[::1]:80"),
            ("[::1]", "[::1]", "[::1]:*"),
            ("fe80::1", "fe80::1", "fe80::1:*"),
            ("odd:", "odd:", "odd::*"),
            ("odd:x", "odd:x", "odd:x:*"),
        ] {
            let named = [named.to_owned()];
            assert_eq!(hosts(&named).into_iter().collect::<Vec<_>>(), [host], "{named:?}");
            assert_eq!(endpoints(&named).into_iter().collect::<Vec<_>>(), [endpoint], "{named:?}");
        }
    }
}
