//! Why an archive is refused. Every trick has a name of its own, so that a refusal says what was tried.

use super::names::NameFault;

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// It has no end record, so it is no ZIP file.
    #[error("this is not a ZIP archive: it has no end record")]
    NotAnArchive,
    /// The file is larger than the limit.
    #[error("the archive has {bytes} bytes; at most {limit} are accepted")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// There are bytes behind the end record.
    #[error("there are {bytes} bytes behind the end of the archive")]
    TrailingData {
        /// How many.
        bytes: usize,
    },
    /// There are bytes before the first entry.
    #[error("there are {bytes} bytes before the first entry")]
    LeadingData {
        /// How many.
        bytes: usize,
    },
    /// The archive has a comment, in which anything could hide.
    #[error("the archive or the entry `{entry}` has a comment")]
    Comment {
        /// The entry; empty for the archive.
        entry: String,
    },
    /// It is spread over several files.
    #[error("the archive says that it is one of several files")]
    MultiDisk,
    /// It uses the 64-bit form, which no artifact needs.
    #[error("the archive uses ZIP64, which gives sizes and offsets a second place to disagree")]
    Zip64,
    /// The directory is cut off or does not add up.
    #[error("the directory of the archive does not add up: {what}")]
    Directory {
        /// How.
        what: &'static str,
    },
    /// There are no entries, or too many.
    #[error("the archive has {count} entries; an artifact has 1 to {limit}")]
    EntryCount {
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// An entry is larger than the limit.
    #[error("`{entry}` has {bytes} bytes; at most {limit} are accepted")]
    EntryTooLarge {
        /// The entry.
        entry: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// All entries together are larger than the limit.
    #[error("the entries have more than {limit} bytes together")]
    TotalTooLarge {
        /// The limit.
        limit: usize,
    },
    /// An entry inflates to far more than it weighs.
    #[error("`{entry}` inflates to more than {limit} times its size")]
    Ratio {
        /// The entry.
        entry: String,
        /// The limit.
        limit: usize,
    },
    /// A name is refused.
    #[error("the entry name `{entry}` is refused: {fault}")]
    Name {
        /// The name.
        entry: String,
        /// Why.
        fault: NameFault,
    },
    /// The same name twice.
    #[error("`{entry}` appears twice")]
    Duplicate {
        /// The entry.
        entry: String,
    },
    /// Two names that differ in case only.
    #[error("`{entry}` differs from another entry in upper and lower case only")]
    CaseTwin {
        /// The entry.
        entry: String,
    },
    /// A name that is both a file and a directory.
    #[error("`{entry}` is a file in one place and a directory in another")]
    FileAndDirectory {
        /// The entry.
        entry: String,
    },
    /// A symbolic link.
    #[error("`{entry}` is a symbolic link")]
    Symlink {
        /// The entry.
        entry: String,
    },
    /// A device, a pipe, or rights that a plain file does not have.
    #[error("`{entry}` is not a plain file with the rights of one")]
    SpecialFile {
        /// The entry.
        entry: String,
    },
    /// An entry is encrypted.
    #[error("`{entry}` is encrypted")]
    Encrypted {
        /// The entry.
        entry: String,
    },
    /// A way of compressing that artifacts do not use.
    #[error("`{entry}` is compressed by method {method}; entries are deflated, the signature is stored")]
    Method {
        /// The entry.
        entry: String,
        /// The method.
        method: u16,
    },
    /// Sizes come behind the content instead of before it.
    #[error("`{entry}` has its sizes behind its content (a data descriptor)")]
    DataDescriptor {
        /// The entry.
        entry: String,
    },
    /// An extra field, which readers interpret in different ways.
    #[error("`{entry}` has an extra field")]
    ExtraField {
        /// The entry.
        entry: String,
    },
    /// Two entries share bytes.
    #[error("`{entry}` overlaps another entry")]
    Overlap {
        /// The entry.
        entry: String,
    },
    /// Bytes that belong to no entry.
    #[error("there are {bytes} bytes that belong to no entry before `{entry}`")]
    Gap {
        /// What comes behind them.
        entry: String,
        /// How many.
        bytes: usize,
    },
    /// The directory and the entry's own header disagree.
    #[error("the header of `{entry}` and the directory disagree about its {field}")]
    HeaderMismatch {
        /// The entry.
        entry: String,
        /// What they disagree about.
        field: &'static str,
    },
    /// Something that our writer never writes: the archive was packed again by something else.
    #[error("`{entry}` was not packed by Palyra: its {field} is not the one that the format prescribes")]
    NotCanonical {
        /// The entry.
        entry: String,
        /// What is otherwise.
        field: &'static str,
    },
    /// Compressed content that cannot be inflated to what the directory says.
    #[error("the content of `{entry}` cannot be inflated: {what}")]
    Content {
        /// The entry.
        entry: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The content's checksum does not fit.
    #[error("the checksum of `{entry}` does not fit its content")]
    Checksum {
        /// The entry.
        entry: String,
    },
    /// The last entry is not a signature.
    #[error("the archive is not signed: its last entry is not `signature.json`")]
    Unsigned,
    /// It could not be written, which would be a bug or a lack of memory.
    #[error("the archive cannot be written: {reason}")]
    Unwritable {
        /// Why.
        reason: String,
    },
}

impl ArchiveError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotAnArchive => "archive_not_a_zip",
            Self::TooLarge { .. } => "archive_too_large",
            Self::TrailingData { .. } => "archive_trailing_data",
            Self::LeadingData { .. } => "archive_leading_data",
            Self::Comment { .. } => "archive_comment",
            Self::MultiDisk => "archive_multi_disk",
            Self::Zip64 => "archive_zip64",
            Self::Directory { .. } => "archive_directory",
            Self::EntryCount { .. } => "archive_entry_count",
            Self::EntryTooLarge { .. } => "archive_entry_too_large",
            Self::TotalTooLarge { .. } => "archive_total_too_large",
            Self::Ratio { .. } => "archive_ratio",
            Self::Name { fault, .. } => fault.code(),
            Self::Duplicate { .. } => "archive_duplicate",
            Self::CaseTwin { .. } => "archive_case_twin",
            Self::FileAndDirectory { .. } => "archive_file_and_directory",
            Self::Symlink { .. } => "archive_symlink",
            Self::SpecialFile { .. } => "archive_special_file",
            Self::Encrypted { .. } => "archive_encrypted",
            Self::Method { .. } => "archive_method",
            Self::DataDescriptor { .. } => "archive_data_descriptor",
            Self::ExtraField { .. } => "archive_extra_field",
            Self::Overlap { .. } => "archive_overlap",
            Self::Gap { .. } => "archive_gap",
            Self::HeaderMismatch { .. } => "archive_header_mismatch",
            Self::NotCanonical { .. } => "archive_not_canonical",
            Self::Content { .. } => "archive_content",
            Self::Checksum { .. } => "archive_checksum",
            Self::Unsigned => "archive_unsigned",
            Self::Unwritable { .. } => "archive_unwritable",
        }
    }
}
