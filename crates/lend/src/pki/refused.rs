//! Why TLS refuses a peer, or a peer this host, in words for those who can do something about it.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

/// What was wrong with a certificate, if that is what `error` is about, or what it comes from.
pub(crate) fn explained(error: &(dyn Error + 'static)) -> Option<String> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return of_tls(tls);
        }
        // What an error of the system carries is not among its sources.
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        at = match carried {
            Some(carried) => Some(carried),
            None => error.source(),
        };
    }
    None
}

fn of_tls(error: &rustls::Error) -> Option<String> {
    use CertificateError as Wrong;
    let text = match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => {
                "its certificate has expired; its administrators have to replace it"
            }
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "its certificate is not valid yet; look at the clocks of both hosts"
            }
            Wrong::UnknownIssuer | Wrong::BadSignature => {
                "its certificate is of an authority that this host does not know"
            }
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "its certificate names another host than the one that was called"
            }
            _ => return None,
        },
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => {
                "it says that this host's certificate has expired; replace it"
            }
            AlertDescription::UnknownCA => {
                "it does not know the authority of this host's certificate"
            }
            AlertDescription::CertificateRequired => {
                "it asks for a certificate, and this host shows none"
            }
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError => "it does not accept this host's certificate",
            _ => return None,
        },
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_says_is_found_below_other_errors() {
        let expired = || rustls::Error::InvalidCertificate(CertificateError::Expired);
        let wrapped = io::Error::other(io::Error::other(expired()));
        for error in [Box::new(expired()) as Box<dyn Error>, Box::new(wrapped)] {
            assert!(explained(error.as_ref()).unwrap().contains("expired"));
        }
        assert_eq!(explained(&io::Error::other("else")), None);
        let unknown = rustls::Error::AlertReceived(AlertDescription::UnknownCA);
        assert!(explained(&unknown).unwrap().contains("does not know the authority"));
    }
}
