//! Hosts with certificates of their organisation: a root, one between, and those of the hosts.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::*;

/// Certifies hosts, as an organisation does: not by this program.
struct Organisation {
    root: Certificate,
    between: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Organisation {
    fn new() -> Organisation {
        let authority = || {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let mut params = CertificateParams::default();
            let name = format!("authority {}", NEXT.fetch_add(1, Ordering::Relaxed));
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
            (params, KeyPair::generate().unwrap())
        };
        let (params, key) = authority();
        let root = params.self_signed(&key).unwrap();
        let root_issuer = Issuer::new(params, key);
        let (params, key) = authority();
        let between = params.signed_by(&key, &root_issuer).unwrap();
        Organisation { root, between, issuer: Issuer::new(params, key) }
    }

    /// Writes the files of a host, by the name that its certificate has, which ends in `year`.
    fn certify(&self, host: &Host, name: &str, year: i32) {
        let folder = PathBuf::from(&host.home);
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let own = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(folder.join("ca.pem"), self.root.pem()).unwrap();
        std::fs::write(folder.join("host.pem"), own.pem() + &self.between.pem()).unwrap();
        std::fs::write(folder.join("host.key"), key.serialize_pem()).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        let files = [("authority", "ca.pem"), ("certificate", "host.pem"), ("key", "host.key")];
        let files = files.map(|(what, name)| format!("{what} = \"{}\"\n", file(name))).concat();
        std::fs::write(folder.join("lend.toml"), format!("version = 1\n[certificates]\n{files}"))
            .unwrap();
    }
}

impl Host {
    fn lend(&self, card: &str) -> String {
        let args = ["lend", "up", "--listen", "127.0.0.1:0", "--device", card];
        self.json(&args)["address"].as_str().unwrap().to_owned()
    }

    /// What its daemon and its ends have said.
    pub(super) fn log(&self) -> String {
        let log = PathBuf::from(&self.home).join("run/lend.log");
        std::fs::read_to_string(log).unwrap()
    }

    pub(super) fn said(&self, what: &str) {
        await_that(LIMIT, what, || self.log().contains(what));
    }
}

#[test]
fn hosts_of_one_organisation_know_each_other_and_take_new_certificates_while_they_run() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let organisation = Organisation::new();
    let [a, b] = ["a", "b"].map(|name| Host::new(&folder, name));
    organisation.certify(&a, "a.example.org", 2999);
    organisation.certify(&b, "b", 2999);
    let address = a.lend(&card.folder);
    assert!(a.refused(&["lend", "invite"]).contains("HOST@ADDRESS"));
    assert!(b.refused(&["join", &address, "a.00"]).contains("HOST@ADDRESS"));
    let why = b.refused(&["join", &format!("c@{address}")]);
    assert!(why.contains("names another host"), "{why}");
    b.run(&["join", &format!("a.example.org@{address}")]);
    let held = b.hold(&["card0@a.example.org"]);
    assert!(a.device()["holder"].as_str().unwrap().ends_with("on b"));
    assert!(!a.run(&["who"]).contains("certificate"));

    // New ones while a lease is held: nothing that goes on notices.
    for (host, name) in [(&a, "a.example.org"), (&b, "b")] {
        organisation.certify(host, name, 2998);
        host.signal("daemon", Signal::HUP);
        host.said("this host shows another certificate");
    }
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(a.device()["state"], "lent", "a lease did not outlive its certificates");
    drop(held);
    a.await_state("free", LIMIT);
    b.run(&["borrow", "card0@a.example.org", "--", "true"]);

    // Files that are no use change nothing.
    let key = KeyPair::generate().unwrap().serialize_pem();
    for (file, text, why) in
        [("host.key", &*key, "may not be consistent"), ("host.pem", "", "no certificate")]
    {
        std::fs::write(format!("{}/{file}", a.home), text).unwrap();
        a.signal("daemon", Signal::HUP);
        a.said(why);
    }
    b.run(&["borrow", "card0@a.example.org", "--", "true"]);
    organisation.certify(&a, "z", 2997);
    a.signal("daemon", Signal::HUP);
    a.said("start its daemon anew to be z");
}

#[test]
fn certificates_that_have_expired_or_are_of_strangers_are_refused_in_clear_words() {
    let folder = Folder::new();
    let card = Card::serve(&folder);
    let (organisation, another) = (Organisation::new(), Organisation::new());
    let [a, expired, stranger, wrong] =
        ["a", "expired", "stranger", "wrong"].map(|name| Host::new(&folder, name));
    organisation.certify(&a, "a", 2999);
    let address = a.lend(&card.folder);
    let place = format!("a@{address}");

    organisation.certify(&expired, "b", 2001);
    let why = expired.refused(&["join", &place]);
    assert!(why.contains("this host's certificate has expired"), "{why}");
    assert!(expired.run(&["who"]).contains("has expired on 2001-01-01"));
    a.said("its certificate has expired");

    another.certify(&stranger, "b", 2999);
    let why = stranger.refused(&["join", &place]);
    assert!(why.contains("of an authority that this host does not know"), "{why}");
    // It accepts the lender, which does not accept it.
    let roots = PathBuf::from(&stranger.home).join("ca.pem");
    std::fs::write(&roots, another.root.pem() + &organisation.root.pem()).unwrap();
    stranger.signal("daemon", Signal::HUP);
    stranger.said("this host shows another certificate");
    let why = stranger.refused(&["join", &place]);
    assert!(why.contains("does not know the authority of this host's certificate"), "{why}");
    a.said("of an authority that this host does not know");

    // One whose chain leads nowhere does not even start.
    organisation.certify(&wrong, "w", 2999);
    std::fs::write(PathBuf::from(&wrong.home).join("ca.pem"), another.root.pem()).unwrap();
    let why = wrong.refused(&["who"]);
    assert!(why.contains("host.pem") && why.contains("does not know"), "{why}");
}
