//! Checked-in mutations: each breaks one rule of leases, and the model must catch each.
//!
//! They are the negative controls of `tests/model`. Without the feature `mutations` the question
//! whether one is on is a constant `false` and costs nothing.

/// One broken rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Mutation {
    /// The lender takes a renewal, return or hang-up for the lease that the device has now (rule 1).
    EpochUnchecked,
    /// The lender tells a grant before the ledger has its epoch (rule 1).
    GrantBeforeStored,
    /// The borrower counts from the reply (rule 2).
    CountFromReply,
    /// The borrower takes a reply for its latest request (rule 3).
    AnyReply,
    /// The lender takes a request that comes again for a new one (rule 3).
    KeepDuplicates,
    /// The lender lets a lease go on whose borrower is silent (rule 4).
    IgnoreSilence,
    /// The lender grants a device that was not fenced (rule 5).
    SkipFence,
    /// The lender forgets that the borrower of a lease that it ended may believe in it (rule 6).
    ForgetBelievers,
    /// The lender grants what is left of a set when one of its devices is lost (rule 7).
    GrantInPart,
}

/// Which mutation one side runs with; the default is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Mutated {
    #[cfg(feature = "mutations")]
    active: Option<Mutation>,
}

impl Mutated {
    #[cfg(feature = "mutations")]
    pub(crate) fn set(&mut self, mutation: Mutation) {
        self.active = Some(mutation);
    }

    /// Whether the rule that `mutation` breaks is broken.
    #[inline(always)]
    #[cfg_attr(not(feature = "mutations"), allow(unused_variables))]
    pub(crate) fn on(self, mutation: Mutation) -> bool {
        #[cfg(feature = "mutations")]
        return self.active == Some(mutation);
        #[cfg(not(feature = "mutations"))]
        return false;
    }
}
