//! What can be wrong: a code for each, with its severity and what a repair would do.
//!
//! The table is also in `docs/FSCK.md`; a test compares the two.

use core::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Allowed, for instance what a crash leaves; recovery or growth puts it right.
    Note,
    /// Space is lost, nothing else.
    Leak,
    /// The store is inconsistent.
    Error,
}

impl Severity {
    /// In a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Leak => "leak",
            Severity::Error => "error",
        }
    }
}

/// Makes the codes from rows of variant, severity, name, meaning and repair.
macro_rules! codes {
    ($($variant:ident: $severity:ident, $name:literal, $meaning:literal, $repair:literal;)*) => {
        /// What is wrong: stable, as is its name.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// Its name, in small letters and hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity,)* }
            }

            /// What it says, in a phrase.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $meaning,)* }
            }

            /// What a repair would do, in a phrase.
            #[must_use]
            pub const fn repair(self) -> &'static str {
                match self { $(Code::$variant => $repair,)* }
            }
        }
    };
}

codes! {
    SuperblockCopy: Note, "superblock-copy",
        "a superblock copy fails its checks, as after a crash while it was written",
        "copy the other one over it";
    SuperblockIdentity: Error, "superblock-identity",
        "the two superblock copies differ in what stays for life",
        "keep the one with the higher sequence";
    SuperblockSequence: Error, "superblock-sequence",
        "a superblock copy's sequence is not one for its place, or not next to the other's",
        "store both copies again";
    AttachGeneration: Error, "attach-generation",
        "the attach generation has a tag of 0",
        "add 1";
    FeaturesUnknown: Note, "features-unknown",
        "features that need not be known, so that what they add was not checked",
        "nothing";
    KindTable: Error, "kind-table",
        "a kind of the file system is not what the format says",
        "restore the entry";
    RegionLength: Note, "region-length",
        "the file is longer than the region's groups need, as after a crash while it grew",
        "cut the file off";
    StateGroups: Error, "state-groups",
        "the number of groups is impossible; that of the file's length is used",
        "store that number";
    SlabGroups: Error, "slab-groups",
        "the mask of slab groups lacks a bit of a group that has a slab",
        "set the bits";
    StateChunks: Error, "state-chunks",
        "the number of chunks of holdings is impossible; no orphans are looked for",
        "store the most there can be";
    Orphan: Error, "orphan",
        "the word of a holding for an orphan leads to no inode",
        "store 0";
    RootVersion: Error, "root-version",
        "there is no version of the file system, but other roots",
        "store the version";
    RootFileMax: Error, "root-file-max",
        "the most bytes of a file is more than a file can have",
        "store the most there can be";
    RootReserve: Error, "root-reserve",
        "more space is reserved than can be; it counts as the most that can be",
        "store the most there can be";
    RootDirectory: Error, "root-directory",
        "the root for the root directory does not lead to a directory's inode",
        "make a new root directory for what is found";
    RootUnused: Error, "root-unused",
        "a root that the file system does not have is not 0",
        "store 0";
    NoFileSystem: Note, "no-file-system",
        "the region holds no file system",
        "nothing";
    LaneCommit: Error, "lane-commit",
        "a lane's commit word counts more than there can be",
        "retire the lane";
    LaneDropped: Note, "lane-dropped",
        "a record that does not match its checksum: it never happened",
        "retire the lane";
    LaneEntry: Error, "lane-entry",
        "a committed record has an entry that is impossible",
        "carry out the other entries";
    LaneConflict: Error, "lane-conflict",
        "two committed records change the same bits",
        "carry out both, in the order of lanes";
    PagesUsed: Error, "pages-used",
        "the lanes' counts of pages in use do not add up to the pages allocated",
        "correct one lane's count";
    IntentUnknown: Error, "intent-unknown",
        "an intent with a code that the file system does not have",
        "drop the intent";
    IntentStale: Note, "intent-stale",
        "an intent for a file that there is no more",
        "drop the intent";
    IntentNamed: Error, "intent-named",
        "an intent to reap a file that has names",
        "drop the intent";
    PageDescriptor: Error, "page-descriptor",
        "an allocated page whose descriptor is none",
        "take it for what leads to it, or free it";
    PageKind: Error, "page-kind",
        "an allocated page of a kind that there is not, or that has no such pages",
        "free the page";
    SlabPages: Error, "slab-pages",
        "a slab lacks one of its pages",
        "give it the page, if nothing else has it";
    SlabTail: Error, "slab-tail",
        "a page of a slab without the slab",
        "free the page";
    SlabMap: Error, "slab-map",
        "a slab's map has objects past its last one",
        "clear the bits";
    PageUnreachable: Leak, "page-unreachable",
        "allocated pages to which nothing leads",
        "free the pages";
    ObjectUnreachable: Leak, "object-unreachable",
        "an allocated object to which nothing leads",
        "free the object";
    PointerCheck: Error, "pointer-check",
        "a pointer word whose check bits do not match",
        "drop what it leads to";
    PointerPlace: Error, "pointer-place",
        "a pointer word to where no such object can be",
        "drop what it leads to";
    PointerFree: Error, "pointer-free",
        "a pointer word to what is not allocated",
        "drop what it leads to, or allocate it";
    PointerKind: Error, "pointer-kind",
        "a pointer word to a page of another kind",
        "drop what it leads to";
    PageShared: Error, "page-shared",
        "a page to which two words lead",
        "give the second one a copy";
    ObjectShared: Error, "object-shared",
        "an object to which two words lead",
        "give the second one a copy";
    InodeChecksum: Error, "inode-checksum",
        "an inode does not match its checksum",
        "keep it if its fields are possible, otherwise free it";
    InodeMode: Error, "inode-mode",
        "an inode's type, content form or flags are impossible",
        "free the inode";
    InodeContent: Error, "inode-content",
        "an inode's content word or shape is impossible",
        "drop the content";
    InodeSize: Error, "inode-size",
        "an inode's size is impossible",
        "take what the content covers";
    InodePages: Error, "inode-pages",
        "an inode counts other pages than its content has",
        "count again";
    InodeAttributes: Error, "inode-attributes",
        "an inode's word for its attributes is impossible",
        "drop the attributes";
    InodeParent: Error, "inode-parent",
        "an inode's parent is impossible for its type",
        "take the directory that names it";
    InodeThreshold: Error, "inode-threshold",
        "the threshold of a file's own is more than a file can have",
        "take it away";
    InodeGeneration: Error, "inode-generation",
        "an inode's generation is the number of no record that was committed",
        "give it a new one";
    GenerationShared: Error, "generation-shared",
        "two inodes have the same generation",
        "give the second one a new one";
    InodeLinks: Error, "inode-links",
        "an inode's link count differs from the names, or directories, that there are",
        "store the number found";
    InodeLost: Error, "inode-lost",
        "an inode that should have a name has none",
        "give it a name in a directory for what was lost";
    InodeUnnamed: Leak, "inode-unnamed",
        "an inode that has no names, that no holding keeps and no intent reaps",
        "free the file";
    DirectoryParent: Error, "directory-parent",
        "a directory's parent is not the directory that names it",
        "store the number of that one";
    DirectoryNames: Error, "directory-names",
        "a directory that has two names, or the root directory one",
        "remove the names that are not in its parent";
    DirectoryLoop: Error, "directory-loop",
        "directories that are each in the next, and none in the root directory",
        "move one to a directory for what was lost";
    DirectoryEntries: Error, "directory-entries",
        "a directory counts other entries than it has",
        "count again";
    DirectorySlot: Error, "directory-slot",
        "a word of a directory that is no slot, or leads too deep",
        "drop what it leads to";
    DirectorySlots: Error, "directory-slots",
        "a bucket does not have the slots of its prefix, or not alone",
        "store the slots";
    DirectoryNode: Error, "directory-node",
        "a directory node without a slot that leads anywhere",
        "free the node";
    BucketHeader: Error, "bucket-header",
        "a bucket's header is none, or not that of the slots that lead there",
        "store the header";
    BucketTags: Error, "bucket-tags",
        "tags of a bucket are not those of its dentries",
        "store the tags";
    BucketEmpty: Error, "bucket-empty",
        "a bucket without a dentry",
        "free the bucket";
    DentryFields: Error, "dentry-fields",
        "a dentry whose type, length or place is impossible",
        "remove the entry";
    DentryHash: Error, "dentry-hash",
        "a dentry's hash is not its name's, or not one of the bucket's",
        "insert the name again";
    DentryName: Error, "dentry-name",
        "a name that no entry can have",
        "give the file another name";
    DentryPadding: Error, "dentry-padding",
        "bytes after a name that are not 0",
        "store 0";
    DentryPosition: Error, "dentry-position",
        "two entries at the same position",
        "insert the second one again";
    DentryTwice: Error, "dentry-twice",
        "a name that a directory has twice",
        "give the second file another name";
    DentryType: Error, "dentry-type",
        "an entry says another type than its inode",
        "store the inode's type";
    RootChunks: Error, "root-chunks",
        "the roots about the volume's space contradict each other, or what can be",
        "store what the volume says";
    Chunk: Error, "chunk",
        "a chunk of the volume's space fails its checksum, or its fields are impossible",
        "look for its file's data by its number";
    ChunkOwner: Error, "chunk-owner",
        "a chunk is another file's than the one that has it, or should have none",
        "store the one that has it";
    ChunkNumber: Error, "chunk-number",
        "a chunk's number is another one's, or one that nobody has drawn",
        "keep the one whose checksum is right";
    ChunkList: Error, "chunk-list",
        "a list of chunks leads where it can't, or a chunk is not on the list that it says",
        "make the lists anew";
    TreeSlot: Error, "tree-slot",
        "a word of a file's tree that is no slot of its level",
        "make it a hole";
    SymlinkForm: Error, "symlink-form",
        "a symbolic link's content has not the form, or the room, that its size needs",
        "remove the link";
    SymlinkTarget: Error, "symlink-target",
        "a symbolic link's target has a byte that is 0",
        "remove the link";
    AttributesLength: Error, "attributes-length",
        "the length of attributes is impossible where they are",
        "drop the attributes";
    AttributesChecksum: Error, "attributes-checksum",
        "attributes do not match their checksum",
        "keep what can be read";
    AttributesItems: Error, "attributes-items",
        "attributes that are no items in the order of their names",
        "keep what can be read";
    AccessList: Error, "access-list",
        "an access list is none, or stands where none can be",
        "drop the list";
    AccessListMode: Error, "access-list-mode",
        "an access list does not say what the mode says",
        "change the list as the mode says";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
