//! TLS with the checks that libpq's words for `sslmode` ask for.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Checks of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// None: the connection is encrypted, but anybody may be at its other end.
    Nothing,
    /// An authority that is trusted signed it.
    Chain,
    /// And it is of the host that is asked.
    ChainAndName,
}

/// File of the system's authorities, for `sslrootcert=system`.
const SYSTEM: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Returns a connector that trusts the authorities in the file `roots`, and identifies itself by the
/// files of a certificate and its key, if there are any.
///
/// # Errors
/// If a file is missing or cannot be read.
pub fn connector(
    checks: Checks,
    roots: Option<&Path>,
    own: Option<(&Path, &Path)>,
) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let (trusted, chain) = match (checks, roots) {
        (Checks::Nothing, _) => (Vec::new(), None),
        (_, None) => bail!(
            "this sslmode checks the server's certificate, and needs the file of the authority that \
             signed it: sslrootcert=FILE, sslrootcert=system or ~/.postgresql/root.crt"
        ),
        (_, Some(path)) => {
            let trusted = authorities(path)?;
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(trusted.iter().cloned());
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider));
            (trusted, Some(verifier.build().with_context(|| path.display().to_string())?))
        }
    };
    let named = checks == Checks::ChainAndName;
    let verifier = Verifier { provider: Arc::clone(&provider), trusted, chain, named };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let named = || key.display().to_string();
            let secret = PrivateKeyDer::from_pem_file(key).with_context(named)?;
            builder.with_client_auth_cert(certificates(certificate)?, secret).with_context(named)?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    if path != Path::new("system") {
        return certificates(path);
    }
    match SYSTEM.iter().find(|file| Path::new(file).is_file()) {
        Some(file) => certificates(Path::new(file)),
        None => bail!("this system keeps no authorities in {}: name their file", SYSTEM.join(", ")),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let named = || path.display().to_string();
    let all = CertificateDer::pem_file_iter(path).with_context(named)?;
    let all = all.collect::<Result<Vec<_>, _>>().with_context(named)?;
    match all.is_empty() {
        true => bail!("{}: there is no certificate in it", path.display()),
        false => Ok(all),
    }
}

/// Verifies certificates of servers.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Trusted certificates; a server may show one of them as its own.
    trusted: Vec<CertificateDer<'static>>,
    /// Verifies the chain and the name; `None` to accept every certificate.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// True if the name of the host counts.
    named: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        if self.trusted.iter().any(|one| one.as_ref() == shown.as_ref()) {
            if self.named {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chain.verify_server_cert(shown, intermediates, name, ocsp, now) {
            // The name is checked last, behind the chain.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.named => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, shown, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, shown, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
