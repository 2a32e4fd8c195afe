//! Codex's patches, as the unified differences that Palyra's own tool takes: what people are shown and rules are asked
//! about.

use crate::exit::{Failure, REFUSED};

/// How many lines around a change are shown.
const CONTEXT: usize = 3;

/// Turns a patch into a unified difference. `look` gives a path relative to the workspace and what the file holds.
pub fn unified(
    patch: &str,
    look: impl Fn(&str) -> Result<(String, Option<String>), Failure>,
) -> Result<String, Failure> {
    let mut lines = patch.lines().map(|line| line.trim_end_matches('\r')).peekable();
    let mut diff = String::new();
    while let Some(line) = lines.next() {
        let named = |prefix: &str| line.strip_prefix(prefix).map(str::trim);
        if let Some(path) = named("*** Add File: ") {
            let mut content = String::new();
            while let Some(added) = lines.next_if(|line| line.starts_with('+')) {
                content.push_str(&added[1..]);
                content.push('\n');
            }
            let (path, old) = look(path)?;
            file(&mut diff, (&path, old.as_deref()), (&path, Some(&content)));
        } else if let Some(path) = named("*** Delete File: ") {
            let (path, old) = look(path)?;
            file(&mut diff, (&path, Some(&old.ok_or_else(|| misfit(&path))?)), (&path, None));
        } else if let Some(path) = named("*** Update File: ") {
            let (path, old) = look(path)?;
            let old = old.ok_or_else(|| misfit(&path))?;
            let moved = lines.next_if(|line| line.starts_with("*** Move to: "));
            let mut hunks: Vec<Vec<&str>> = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("*** ") || *line == "*** End of File") {
                match line {
                    "*** End of File" => {}
                    _ if line.starts_with("@@") => hunks.push(Vec::new()),
                    _ if hunks.is_empty() => hunks.push(vec![line]),
                    _ => hunks.last_mut().map_or((), |hunk| hunk.push(line)),
                }
            }
            let new = applied(&old, &hunks).ok_or_else(|| misfit(&path))?;
            match moved.and_then(|line| line.strip_prefix("*** Move to: ")) {
                None => file(&mut diff, (&path, Some(&old)), (&path, Some(&new))),
                Some(to) => {
                    let (to, there) = look(to.trim())?;
                    file(&mut diff, (&path, Some(&old)), (&path, None));
                    file(&mut diff, (&to, there.as_deref()), (&to, Some(&new)));
                }
            }
        }
    }
    if diff.is_empty() {
        return Err(Failure::new(REFUSED, "patch_malformed", "the patch changes nothing that is understood", None));
    }
    Ok(diff)
}

fn misfit(path: &str) -> Failure {
    let message = format!("the patch does not fit `{path}`");
    Failure::new(REFUSED, "patch_does_not_fit", message, Some("read the file again"))
}

/// The file with each hunk applied where its lines stand.
fn applied(old: &str, hunks: &[Vec<&str>]) -> Option<String> {
    let mut lines: Vec<&str> = old.lines().collect();
    let mut from = 0;
    for hunk in hunks {
        let kept = |mark: char| {
            hunk.iter().filter(move |line| !line.starts_with(mark)).map(|line| line.get(1..).unwrap_or(""))
        };
        let (was, becomes): (Vec<&str>, Vec<&str>) = (kept('+').collect(), kept('-').collect());
        let at = if was.is_empty() { lines.len() } else { find(&lines, &was, from)? };
        lines.splice(at..at + was.len(), becomes.iter().copied());
        from = at + becomes.len();
    }
    Some(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// Where lines stand, exactly or but for blanks at their ends.
fn find(lines: &[&str], wanted: &[&str], from: usize) -> Option<usize> {
    let starts = || (from..=lines.len().checked_sub(wanted.len())?).into();
    let starts: Option<std::ops::RangeInclusive<usize>> = starts();
    let fits = |at: usize, same: fn(&str, &str) -> bool| lines[at..].iter().zip(wanted).all(|(a, b)| same(a, b));
    let starts = starts?;
    let exact = starts.clone().find(|at| fits(*at, |a, b| a == b));
    exact.or_else(|| starts.clone().find(|at| fits(*at, |a, b| a.trim_end() == b.trim_end())))
}

/// Adds the difference of one file.
fn file(diff: &mut String, (old_path, old): (&str, Option<&str>), (new_path, new): (&str, Option<&str>)) {
    let (before, after) = (lines(old), lines(new));
    let same = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(after.len()) - same;
    let tail = before.iter().rev().zip(after.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let lead = same.min(CONTEXT);
    let trail = tail.min(CONTEXT);
    let part = |lines: &[String]| (same - lead, lines.len() - tail + trail);
    let ((from, old_end), (_, new_end)) = (part(&before), part(&after));
    let name =
        |side: &str, path: &str, there: bool| if there { format!("{side}/{path}") } else { "/dev/null".to_owned() };
    diff.push_str(&format!("--- {}\n", name("a", old_path, old.is_some())));
    diff.push_str(&format!("+++ {}\n", name("b", new_path, new.is_some())));
    let (olds, news) = (old_end - from, new_end - from);
    let start = |count: usize| if count == 0 { from } else { from + 1 };
    diff.push_str(&format!("@@ -{},{olds} +{},{news} @@\n", start(olds), start(news)));
    let mut add =
        |mark: char, lines: &[String]| lines.iter().for_each(|line| diff.push_str(&format!("{mark}{line}\n")));
    add(' ', &before[from..same]);
    add('-', &before[same..before.len() - tail]);
    add('+', &after[same..after.len() - tail]);
    add(' ', &before[before.len() - tail..old_end]);
}

/// The lines of a file; its last says so where it does not end.
fn lines(text: Option<&str>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let (false, Some(last)) = (text.is_empty() || text.ends_with('\n'), lines.last_mut()) {
        last.push_str("\n\\ No newline at end of file");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(path: &str) -> Result<(String, Option<String>), Failure> {
        let held = match path {
            "a" => Some("1\n2\n3\n4\n5\n6\n7\n8\n9\n".to_owned()),
            "bare" => Some("x".to_owned()),
            _ => None,
        };
        Ok((path.to_owned(), held))
    }

    #[test]
    fn adding_changing_moving_and_deleting_become_differences() {
        let patch = "*** Begin Patch\n*** Update File: a\n@@\n 4\n-5\n+five\n 6\n*** Add File: new\n+hello\n*** Delete File: bare\n*** End Patch\n";
        let diff = unified(patch, look).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(
            diff,
            "--- a/a\n+++ b/a\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+hello\n\
             --- a/bare\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n\\ No newline at end of file\n"
        );
        let moved =
            unified("*** Update File: a\n*** Move to: b\n@@\n-1\n+one\n", look).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(moved.contains("+++ /dev/null") && moved.contains("+++ b/b") && moved.contains("+one\n"), "{moved}");
    }

    #[test]
    fn a_patch_that_does_not_fit_is_refused() {
        for patch in
            ["", "*** Begin Patch\n*** End Patch", "*** Update File: a\n@@\n-no such line\n", "*** Delete File: z\n"]
        {
            assert!(unified(patch, look).is_err(), "{patch}");
        }
    }
}
