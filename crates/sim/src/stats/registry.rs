//! The registry of statistics: every counter has a dotted name, a unit and a description, declared
//! once, beside the field.

/// What a statistic is called and measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name within its group, as in `gpu.2.tlb.l1.hits`.
    pub name: &'static str,
    /// Its unit: `count`, `ps`, `bytes`, `pages`.
    pub unit: &'static str,
    /// What it counts.
    pub text: &'static str,
}

/// Declares a struct of counters that adds up and describes itself:
///
/// ```ignore
/// counters! {
///     /// What one thing counted.
///     pub struct Counts {
///         /// Lookups that hit.
///         hits: u64 = "tlb.hits", "count";
///     }
/// }
/// ```
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident {
            $(#[doc = $text:literal] $field:ident: $Type:ty = $name:literal, $unit:literal;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $Name {
            $(#[doc = $text] pub $field: $Type,)+
        }

        impl $Name {
            /// Every counter: its name, unit and description.
            pub const DESCRIPTIONS: &'static [$crate::stats::Description] = &[
                $($crate::stats::Description {
                    name: $name,
                    unit: $unit,
                    text: $text.trim_ascii(),
                },)+
            ];

            /// The values, in the order of [`Self::DESCRIPTIONS`].
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(u64::from(self.$field),)+]
            }

            /// Both together.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                $Name { $($field: self.$field + other.$field,)+ }
            }
        }
    };
}

pub(crate) use counters;
