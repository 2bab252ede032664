//! Kinds of problems. Each has a stable path, served as a page.

use std::fmt::Write;

use axum::http::StatusCode;

use crate::markdown::paragraph;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $slug:literal $status:ident $title:literal $description:literal)+) => {
        /// Kind of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $(#[doc = $title] $kind,)+
        }

        impl Kind {
            /// All kinds, by status.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Last part of the path.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug,)+ }
            }

            /// Path that identifies the kind: `/problems/SLUG`.
            #[must_use]
            pub const fn uri(self) -> &'static str {
                match self { $(Self::$kind => concat!("/problems/", $slug),)+ }
            }

            /// HTTP status of every response of this kind.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)+ }
            }

            /// Short summary, the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)+ }
            }

            /// Cause and remedy, in sentences.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Self::$kind => $description,)+ }
            }
        }
    };
}

kinds! {
    InvalidParameter "invalid-parameter" BAD_REQUEST "Invalid parameter"
        "A query parameter is unknown, repeated, or has an invalid value. `detail` names it."
    InvalidCursor "invalid-cursor" BAD_REQUEST "Invalid cursor"
        "`continue` is malformed, belongs to another list or other parameters, or was issued before uvmd restarted. Read the list from its first page."
    InvalidHost "invalid-host" BAD_REQUEST "Invalid host"
        "The request has no `Host`, more than one, or a malformed one."
    InvalidBody "invalid-body" BAD_REQUEST "Invalid body"
        "The body is not JSON, could not be read, or is not empty although the operation takes none."
    InvalidHeader "invalid-header" BAD_REQUEST "Invalid header"
        "`If-Match` or `If-None-Match` is malformed. `detail` names it."
    TokenRequired "token-required" UNAUTHORIZED "Token required"
        "The operation requires a permission that a token grants. Send it as `Authorization: Bearer TOKEN`, or use uvmd's Unix socket."
    InvalidToken "invalid-token" UNAUTHORIZED "Invalid token"
        "The request has a token that uvmd does not know. It is rejected even where no token is needed, so that the mistake is visible."
    InvalidCredentials "invalid-credentials" UNAUTHORIZED "Invalid credentials"
        "The address of `metrics.listen` requires a user and a password of `metrics.web_config_file`, and the request has none, an unknown user or a wrong password. Send them by basic authentication."
    PermissionDenied "permission-denied" FORBIDDEN "Permission denied"
        "The operation requires a permission that the client lacks, and that no token could grant because uvmd has none."
    InsufficientToken "insufficient-token" FORBIDDEN "Insufficient token"
        "The token grants read permission, and the operation requires write permission. Use the token of `auth.write_token_file`."
    ForeignOrigin "foreign-origin" FORBIDDEN "Foreign origin"
        "A page of another site requested a change through a visitor's browser, by its `Origin` or `Sec-Fetch-Site`."
    NotFound "not-found" NOT_FOUND "Not found"
        "The path, process, GPU, owner, override or decision is unknown. `detail` names the list of those that are known."
    MethodNotAllowed "method-not-allowed" METHOD_NOT_ALLOWED "Method not allowed"
        "The path does not support the method. `Allow` lists those that it supports."
    OverrideInFile "override-in-file" CONFLICT "Override in file"
        "The override is defined in a file, and must be changed there."
    OverrideExists "override-exists" CONFLICT "Override exists"
        "Another override has this id. `PUT` replaces it."
    PreconditionFailed "precondition-failed" PRECONDITION_FAILED "Precondition failed"
        "The override does not match `If-Match` or `If-None-Match`. Read it again, and retry with its current `ETag`."
    BodyTooLarge "body-too-large" PAYLOAD_TOO_LARGE "Body too large"
        "The body has more than 64 KiB."
    UnsupportedMediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "Unsupported media type"
        "The body is not declared as `Content-Type: application/json`."
    UnknownHost "unknown-host" MISDIRECTED_REQUEST "Unknown host"
        "The request names a host that is not uvmd's, so a web site must not reach it through a visitor's browser. Add the name to `http.hosts`."
    InvalidField "invalid-field" UNPROCESSABLE_ENTITY "Invalid field"
        "A field of the body is unknown, missing, or has an invalid value. `errors` names it by JSON Pointer."
    InternalError "internal-error" INTERNAL_SERVER_ERROR "Internal error"
        "uvmd failed. Its log has the cause."
    CollectorUnavailable "collector-unavailable" SERVICE_UNAVAILABLE "Collector unavailable"
        "The collector stopped, or did not respond in time."
    Overloaded "overloaded" SERVICE_UNAVAILABLE "Overloaded"
        "Too many requests, streams or responses are in progress. Retry after the time in `Retry-After`."
    DiskStalled "disk-stalled" SERVICE_UNAVAILABLE "Disk stalled"
        "The disk accepted no change within 2 s. `detail` states whether the change is made later or not at all."
    TooManyOverrides "too-many-overrides" INSUFFICIENT_STORAGE "Too many overrides"
        "The maximum number of overrides is reached. Delete one first."
    ChangeNotSaved "change-not-saved" INSUFFICIENT_STORAGE "Change not saved"
        "The change could not be written to the state file, and is not in effect."
    ChangeNotAudited "change-not-audited" INSUFFICIENT_STORAGE "Change not audited"
        "The change could not be written to the audit log, and is not in effect."
}

/// Documentation of all kinds in Markdown, with one section each.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "# Problem types\n\n\
         Errors of the [HTTP API](api.md#errors) are problems as in RFC 9457. The `type` of a problem is one of\n\
         the paths below. uvmd serves each as a page. Types are stable, and so is the status of each. Clients\n\
         should decide by `type`; `title` and `detail` are for people.\n\n\
         | type | status | title |\n| --- | --- | --- |\n",
    );
    for kind in Kind::ALL {
        let (slug, status, title) = (kind.slug(), kind.status().as_u16(), kind.title());
        // Writing to a string does not fail.
        let _ = writeln!(text, "| [`{}`](#problems{slug}) | {status} | {title} |", kind.uri());
    }
    for kind in Kind::ALL {
        let _ = write!(text, "\n## `{}`\n\n{}\n", kind.uri(), paragraph(&section(*kind)));
    }
    text
}

/// Page of one kind, in Markdown.
pub(crate) fn page(kind: Kind) -> String {
    format!("# {}\n\n{}\n\nType: `{}`\n", kind.title(), paragraph(&section(kind)), kind.uri())
}

fn section(kind: Kind) -> String {
    format!("**{}**, status {}. {}", kind.title(), kind.status().as_u16(), kind.description())
}
