//! The two kinds of strings that rows are made of.
//!
//! dbsp has no string type of its own. The runtime of Feldera's SQL compiler, its main user, shares strings by
//! reference count (`arcstr`). Strings of a few letters are quicker in place (`compact_str`, up to 24 bytes).

use std::fmt::Debug;

use arcstr::ArcStr;
use compact_str::CompactString;
use dbsp::{DBData, never_none, never_roaring_filter};
use rkyv::string::{ArchivedString, StringResolver};
use rkyv::{Archive, Deserialize, Fallible, SerializeUnsized};
use size_of::{Context, SizeOf};

pub trait Text: DBData + for<'a> From<&'a str> + AsRef<str> {}

macro_rules! text {
    ($name:ident, $inner:ty) => {
        #[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name($inner);

        impl Text for $name {}

        impl From<&str> for $name {
            #[inline]
            fn from(text: &str) -> Self {
                Self(<$inner>::from(text))
            }
        }

        impl AsRef<str> for $name {
            #[inline]
            fn as_ref(&self) -> &str {
                self.0.as_str()
            }
        }

        impl SizeOf for $name {
            fn size_of_children(&self, context: &mut Context) {
                if size_of::<Self>() < self.0.len() {
                    context.add(self.0.len());
                }
            }
        }

        impl Archive for $name {
            type Archived = ArchivedString;
            type Resolver = StringResolver;

            unsafe fn resolve(&self, at: usize, resolver: StringResolver, out: *mut ArchivedString) {
                unsafe { ArchivedString::resolve_from_str(self.as_ref(), at, resolver, out) }
            }
        }

        impl<S: Fallible + ?Sized> rkyv::Serialize<S> for $name
        where
            str: SerializeUnsized<S>,
        {
            fn serialize(&self, serializer: &mut S) -> Result<StringResolver, S::Error> {
                ArchivedString::serialize_from_str(self.as_ref(), serializer)
            }
        }

        impl<D: Fallible + ?Sized> Deserialize<$name, D> for ArchivedString {
            fn deserialize(&self, _: &mut D) -> Result<$name, D::Error> {
                Ok($name::from(self.as_str()))
            }
        }

        never_none!($name);
        never_roaring_filter!($name);
    };
}

text!(Inline, CompactString);
text!(Shared, ArcStr);
