//! Values of the web configuration file.

use std::fmt;

use serde::Deserialize;

/// Name of a user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct UserName(String);

/// Hash of a password by bcrypt.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct BcryptHash(String);

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum ClientAuth {
    #[default]
    NoClientCert,
    RequireAndVerifyClientCert,
}

// === impl UserName ===

impl UserName {
    /// Name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UserName {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        // The header has a colon between name and password.
        let is_name = !name.is_empty() && !name.contains(|c: char| c == ':' || c.is_control());
        if is_name { Ok(Self(name)) } else { Err("expected the name of a user, without colons and control characters") }
    }
}

// === impl BcryptHash ===

impl BcryptHash {
    /// Minimum cost, that of bcrypt itself.
    pub const COST_MIN: u32 = 4;
    /// Maximum cost: one verification takes about a second of a processor.
    pub const COST_MAX: u32 = 14;

    const LENGTH: usize = 60;
    const ALPHABET: &str = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

    /// Hash in its text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Cost of a hash in its text form, `$2y$COST$`, 22 characters of salt and 31 of hash; `None`
    /// if it is none.
    fn cost(text: &str) -> Option<u32> {
        let rest = ["$2a$", "$2b$", "$2y$"].iter().find_map(|version| text.strip_prefix(version))?;
        let (cost, encoded) = rest.split_once('$')?;
        let index = |c| Self::ALPHABET.find(c);
        let indices: Vec<usize> = encoded.chars().map(index).collect::<Option<_>>()?;
        // The last character of each part has unused bits, which are zero.
        let is_whole = indices.get(21)?.is_multiple_of(16) && indices.get(52)?.is_multiple_of(4);
        let is_decimal = cost.len() == 2 && cost.bytes().all(|digit| digit.is_ascii_digit());
        (text.len() == Self::LENGTH && is_whole && is_decimal).then(|| cost.parse().ok())?
    }
}

impl TryFrom<String> for BcryptHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match Self::cost(&text) {
            Some(Self::COST_MIN..=Self::COST_MAX) => Ok(Self(text)),
            Some(cost) => Err(format!(
                "the hash has cost {cost}, expected one from {} to {}: each verification takes twice as long as at the cost below",
                Self::COST_MIN,
                Self::COST_MAX
            )),
            None => Err("expected a hash by bcrypt, as `htpasswd -nBC 10 \"\"` prints".to_owned()),
        }
    }
}

impl fmt::Debug for BcryptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BcryptHash")
    }
}

// === impl TlsVersion ===

impl TryFrom<String> for TlsVersion {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        match name.as_str() {
            "TLS12" => Ok(Self::Tls12),
            "TLS13" => Ok(Self::Tls13),
            "TLS10" | "TLS11" => {
                Err(format!("uvmd does not implement {name}, which is insecure: expected TLS12 or TLS13"))
            }
            _ => Err("expected TLS12 or TLS13".to_owned()),
        }
    }
}

// === impl ClientAuth ===

impl TryFrom<String> for ClientAuth {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let expected = "expected NoClientCert or RequireAndVerifyClientCert";
        match name.as_str() {
            "" | "NoClientCert" => Ok(Self::NoClientCert),
            "RequireAndVerifyClientCert" => Ok(Self::RequireAndVerifyClientCert),
            "RequestClientCert" | "RequireClientCert" | "RequireAnyClientCert" | "VerifyClientCertIfGiven" => {
                Err(format!("uvmd does not implement {name}: {expected}"))
            }
            _ => Err(expected.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2y$10$ABCDEFGHIJKLMNOPQRSTUu01234567890123456789012345678.u";

    fn hash(text: &str) -> Result<BcryptHash, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn hash_is_one_of_bcrypt_with_an_affordable_cost() {
        for good in [HASH, &HASH.replace("2y", "2a"), &HASH.replace("2y", "2b"), &HASH.replace("$10$", "$04$")] {
            assert_eq!(hash(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "secret",
            &HASH[..59],
            &format!("{HASH}u"),
            &HASH.replace("2y", "2x"),
            &HASH.replace("$10$", "$+9$"),
            &HASH.replace("Uu0", "Uv0"),
            &HASH.replace(".u", ".v"),
            &HASH.replace('7', "_"),
            "$apr1$10$ABCDEFGHIJKLMNOPQRSTUu0123456789012345678901234567",
        ] {
            assert!(hash(bad).unwrap_err().contains("expected a hash by bcrypt"), "{bad}");
        }
        for (cost, is_affordable) in [("03", false), ("14", true), ("15", false), ("31", false)] {
            let hash = hash(&HASH.replace("$10$", &format!("${cost}$")));
            assert_eq!(hash.is_ok(), is_affordable, "{cost}");
            assert!(hash.err().is_none_or(|error| error.contains("from 4 to 14")));
        }
    }

    #[test]
    fn hash_does_not_show_in_logs() {
        assert_eq!(format!("{:?}", hash(HASH).unwrap()), "BcryptHash");
    }

    #[test]
    fn user_has_a_name_that_fits_into_the_header() {
        for (name, is_name) in [("prometheus", true), ("é", true), ("", false), ("a:b", false), ("a\n", false)] {
            assert_eq!(UserName::try_from(name.to_owned()).is_ok(), is_name, "{name:?}");
        }
    }
}
