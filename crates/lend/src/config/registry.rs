//! How hosts find each other: `[registry]`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::parts::absolute;
use super::{Networks, Way, Word, Wrong};

/// Members of an etcd cluster that are named, at most.
const ENDPOINTS_MAX: usize = 16;
/// Bytes of the names under which keys are, at most.
const NAME_MAX: usize = 64;

/// The registry as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    kind: toml::Spanned<Kind>,
    #[serde(default)]
    endpoints: Vec<Word>,
    prefix: Option<Word>,
    cluster: Option<Word>,
    authority: Option<Word>,
    certificate: Option<Word>,
    key: Option<Word>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Embedded,
    Etcd,
}

/// How hosts find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegistrySettings {
    /// They tell each other.
    #[default]
    Embedded,
    /// By etcd.
    Etcd(EtcdSettings),
}

/// Where etcd is, and where the keys of a cluster are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Its members; at least one.
    pub endpoints: Vec<EtcdEndpoint>,
    /// What keys begin with: `/farside`.
    pub prefix: String,
    /// Which of the clusters that share an etcd.
    pub cluster: String,
    /// What TLS needs.
    pub files: Option<EtcdFiles>,
}

/// A member of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdEndpoint {
    /// Over TLS.
    pub is_tls: bool,
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EtcdEndpoint { is_tls, host, port } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

/// Files for TLS with etcd, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdFiles {
    /// Whose servers are accepted.
    pub authority: PathBuf,
    /// This host's certificate and key (PKCS #8), by which etcd knows it.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl RegistrySettings {
    /// `plain`: the networks in which TLS is left out.
    pub(super) fn parse(written: &Written, plain: &Networks) -> Result<RegistrySettings, Wrong> {
        let Written { kind, endpoints, prefix, cluster, authority, certificate, key } = written;
        if *kind.get_ref() == Kind::Embedded {
            let others = [prefix, cluster, authority, certificate, key];
            let other = endpoints.first().or(others.into_iter().flatten().next());
            return match other {
                None => Ok(RegistrySettings::Embedded),
                Some(other) => Err(Wrong::at(other, "that is for kind = \"etcd\"; leave it out")),
            };
        }
        if endpoints.is_empty() || endpoints.len() > ENDPOINTS_MAX {
            let why = format!(
                "name 1 to {ENDPOINTS_MAX} members of etcd: endpoints = [\"https://etcd1:2379\"]"
            );
            return Err(Wrong::at(kind, why));
        }
        let files = files(authority.as_ref(), certificate.as_ref(), key.as_ref())?;
        let endpoint = |word| endpoint(word, plain, files.is_some());
        Ok(RegistrySettings::Etcd(EtcdSettings {
            endpoints: endpoints.iter().map(endpoint).collect::<Result<_, _>>()?,
            prefix: self::prefix(prefix.as_ref())?,
            cluster: name(cluster.as_ref(), "default")?,
            files,
        }))
    }
}

fn files(
    authority: Option<&Word>,
    certificate: Option<&Word>,
    key: Option<&Word>,
) -> Result<Option<EtcdFiles>, Wrong> {
    let own = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((absolute(certificate)?, absolute(key)?)),
        (Some(alone), None) => return Err(Wrong::at(alone, "a certificate needs its `key`")),
        (None, Some(alone)) => return Err(Wrong::at(alone, "a key needs its `certificate`")),
    };
    match (authority, certificate) {
        (Some(authority), _) => Ok(Some(EtcdFiles { authority: absolute(authority)?, own })),
        (None, Some(alone)) => Err(Wrong::at(alone, "name the `authority` of etcd's servers too")),
        (None, None) => Ok(None),
    }
}

fn endpoint(word: &Word, plain: &Networks, has_files: bool) -> Result<EtcdEndpoint, Wrong> {
    let text = word.get_ref();
    let wrong =
        || Wrong::at(word, format!("`{text}` is no endpoint; write it as in https://etcd1:2379"));
    let (scheme, place) = text.split_once("://").ok_or_else(wrong)?;
    let is_tls = match scheme {
        "https" => true,
        "http" => false,
        _ => return Err(wrong()),
    };
    let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address: Option<IpAddr> = bare.parse().ok();
    let is_name = !host.is_empty()
        && host.len() <= 253
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    if address.is_none() && !is_name
        || address.is_some_and(|a| a.is_ipv6()) == (bare == host) && address.is_some()
    {
        return Err(wrong());
    }
    if is_tls && !has_files {
        return Err(Wrong::at(word, "name the `authority` whose certificate that server has"));
    }
    let is_near = |address: IpAddr| {
        address.is_loopback() || plain.contain(Way { own: address, other: address })
    };
    if !is_tls && !address.is_some_and(is_near) {
        let why = format!(
            "`{text}` would go without TLS: use https, or an address in one of the `plain-networks`"
        );
        return Err(Wrong::at(word, why));
    }
    Ok(EtcdEndpoint { is_tls, host: bare.to_owned(), port })
}

fn prefix(word: Option<&Word>) -> Result<String, Wrong> {
    let Some(word) = word else { return Ok("/farside".to_owned()) };
    let text = word.get_ref();
    let is_prefix = text.len() <= NAME_MAX
        && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_name));
    if is_prefix {
        return Ok(text.clone());
    }
    let why = format!("`{text}` is no prefix; write it as in /farside, without a slash at its end");
    Err(Wrong::at(word, why))
}

fn name(word: Option<&Word>, default: &str) -> Result<String, Wrong> {
    let Some(word) = word else { return Ok(default.to_owned()) };
    if is_name(word.get_ref()) {
        return Ok(word.get_ref().clone());
    }
    let why = format!("a cluster has a name of 1 to {NAME_MAX} of A-Z a-z 0-9 . _ -");
    Err(Wrong::at(word, why))
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::super::tests::wrong;
    use super::*;

    fn settings(text: &str) -> RegistrySettings {
        Config::parse(&format!("version = 1\n{text}")).unwrap().registry
    }

    #[test]
    fn etcd_is_where_the_file_says() {
        assert_eq!(settings(""), RegistrySettings::Embedded);
        assert_eq!(settings("[registry]\nkind = \"embedded\""), RegistrySettings::Embedded);
        let text = "plain-networks = [\"10.0.0.0/8\"]\n[registry]\nkind = \"etcd\"\n\
                    endpoints = [\"https://etcd1:2379\", \"http://10.1.2.3:1\", \"http://[::1]:2\"]\n\
                    prefix = \"/lab/lending\"\ncluster = \"b\"\nauthority = \"/a\"\n\
                    certificate = \"/c\"\nkey = \"/k\"";
        let RegistrySettings::Etcd(etcd) = settings(text) else { panic!("{text}") };
        let named: Vec<String> = etcd.endpoints.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["https://etcd1:2379", "http://10.1.2.3:1", "http://[::1]:2"]);
        assert_eq!((&*etcd.prefix, &*etcd.cluster), ("/lab/lending", "b"));
        let own = Some((PathBuf::from("/c"), PathBuf::from("/k")));
        assert_eq!(etcd.files, Some(EtcdFiles { authority: "/a".into(), own }));
    }

    #[test]
    fn what_cannot_be_is_refused_and_says_what_to_do() {
        let near = "endpoints = [\"http://127.0.0.1:2379\"]";
        for (text, line, word) in [
            ("kind = \"zookeeper\"", 3, "zookeeper"),
            ("kind = \"embedded\"\nprefix = \"/x\"", 4, "leave it out"),
            ("kind = \"etcd\"", 3, "name 1 to"),
            ("kind = \"etcd\"\nendpoints = [\"10.0.0.1:2379\"]", 4, "no endpoint"),
            ("kind = \"etcd\"\nendpoints = [\"http://::1:2379\"]", 4, "no endpoint"),
            ("kind = \"etcd\"\nendpoints = [\"http://a b:2379\"]", 4, "no endpoint"),
            ("kind = \"etcd\"\nendpoints = [\"http://10.0.0.1:0\"]", 4, "no endpoint"),
            ("kind = \"etcd\"\nendpoints = [\"http://10.0.0.1:2379\"]", 4, "plain-networks"),
            ("kind = \"etcd\"\nendpoints = [\"http://etcd1:2379\"]", 4, "plain-networks"),
            ("kind = \"etcd\"\nendpoints = [\"https://etcd1:2379\"]", 4, "authority"),
            (&format!("kind = \"etcd\"\n{near}\nprefix = \"x\""), 5, "/farside"),
            (&format!("kind = \"etcd\"\n{near}\nprefix = \"/x/\""), 5, "/farside"),
            (&format!("kind = \"etcd\"\n{near}\ncluster = \"a/b\""), 5, "A-Z"),
            (&format!("kind = \"etcd\"\n{near}\nkey = \"/k\""), 5, "certificate"),
            (&format!("kind = \"etcd\"\n{near}\nauthority = \"ca.pem\""), 5, "absolute"),
            (&format!("kind = \"etcd\"\n{near}\npassword = \"x\""), 5, "password"),
        ] {
            let (found, why) = wrong(&format!("version = 1\n[registry]\n{text}\n"));
            assert!(found == line && why.contains(word), "{text}: line {found}: {why}");
        }
    }
}
