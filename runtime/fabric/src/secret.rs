//! The cluster's secret: a file that only its owner may read.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use super::files;
use super::handshake::Secret;
use crate::error::{self, Error, Result};

/// The environment variable that names the secret's file if the URL does not.
const SECRET_VARIABLE: &str = "FARFIELD_SECRET_FILE";
/// The longest secret.
const MAX_SECRET_BYTES: u64 = 4096;

/// Reads a client's secret from the file that the URL or the environment names; empty without a file.
pub(super) fn of_client(file: Option<&Path>) -> Result<Secret> {
    let named = || std::env::var_os(SECRET_VARIABLE).map(PathBuf::from);
    of_node(file.map(Path::to_path_buf).or_else(named).as_deref())
}

/// Reads a memory node's secret from a file; empty without a file.
pub fn of_node(file: Option<&Path>) -> Result<Secret> {
    file.map_or_else(|| Ok(Secret::new(b"")), read_secret)
}

/// Reads a secret from a file that only its owner may read.
///
/// # Errors
/// [`Error::InvalidArgument`], in one line.
fn read_secret(file: &Path) -> Result<Secret> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let invalid = |reason| {
        let value = file.display().to_string().into();
        Error::from(error::InvalidArgument { argument: "secret file", value, reason })
    };
    let mut open = files::open(file, OpenOptions::new().read(true)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => invalid("there is no such file"),
        std::io::ErrorKind::Other => invalid("it is not a regular file"),
        _ => invalid("it can not be read"),
    })?;
    let metadata = open.metadata().map_err(|_| invalid("it can not be read"))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(invalid("users other than its owner may read it: chmod 600"));
    }
    let mut bytes = Vec::new();
    open.by_ref()
        .take(MAX_SECRET_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|_| invalid("it can not be read"))?;
    // Editors end a file with a line break.
    let secret = bytes.trim_ascii_end();
    if secret.is_empty() {
        return Err(invalid("it is empty"));
    }
    Ok(Secret::new(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let file = std::env::temp_dir().join(format!("farfield-secret-{}", std::process::id()));
        let said = |file: &Path| read_secret(file).map(drop).unwrap_err().to_string();
        assert!(said(&file).contains("no such file"));
        std::fs::write(&file, "open sesame\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(said(&file).contains("chmod 600"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read_secret(&file).is_ok());
        std::fs::write(&file, "\n").unwrap();
        assert!(said(&file).contains("empty"));
        std::fs::remove_file(&file).unwrap();
    }
}
