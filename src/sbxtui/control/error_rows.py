"""The table of what AWS, botocore and the network say, and what to do about it.

Each row names an error class, the reason in words, and a hint; `{…}` in these is filled in by `errors.py`.
"""

from __future__ import annotations

from sbxtui.core.errors import (
    AccessDenied,
    Conflict,
    ControlUnavailable,
    QuotaExceeded,
    RuntimeUnavailable,
    SbxError,
    Throttled,
    Unsupported,
    UsageError,
)
from sbxtui.core.values import dataclass

_SIGN_IN = "sign in again (`aws sso login{profile_flag}`) or renew the keys of {credentials}"
_CLOCK = "set this machine's clock (`timedatectl set-ntp true`) and try again"
_FULL_ARN = "use the full ARN, `arn:aws:lambda:REGION:ACCOUNT:microvm-image:NAME`; `sbx image ls` shows them"


@dataclass(frozen=True, slots=True)
class Row:
    """What one kind of foreign error means. `says` narrows a code by a pattern in AWS's message.

    `is_private`: AWS's own words are left out, because they may quote what was signed.
    """

    codes: tuple[str, ...]
    error: type[SbxError]
    reason: str
    hint: str
    says: str = ""
    is_private: bool = False
    is_final: bool = False


# For answers no row fits.
OTHERWISE = Row((), ControlUnavailable, "{service} failed ({status}){message}", "try again in a moment")
NO_AWS_ANSWER = Row(
    ("ResponseParserError",),
    ControlUnavailable,
    "{endpoint} answered with something that is no answer of AWS",
    "{endpoint_hint}",
    is_private=True,
)
NO_SUCH_ADDRESS = Row((), Unsupported, "the server has no such address", "{endpoint_hint}")

# Errors AWS answers, by code; the first row that fits counts.
ANSWERED: tuple[Row, ...] = (
    Row(
        ("ExpiredTokenException", "ExpiredToken", "RequestExpired", "TokenRefreshRequired"),
        AccessDenied,
        "the credentials of {credentials} have expired",
        _SIGN_IN,
        is_private=True,
    ),
    Row(
        ("RequestTimeTooSkewed", "RequestInTheFuture"),
        AccessDenied,
        "this machine's clock is wrong, so the signature is not accepted",
        _CLOCK,
        is_private=True,
    ),
    Row(
        ("InvalidSignatureException", "SignatureDoesNotMatch"),
        AccessDenied,
        "this machine's clock is wrong, so the signature is not accepted",
        _CLOCK,
        says=r"signature expired|not yet current|date in the future",
        is_private=True,
    ),
    Row(
        ("InvalidSignatureException", "SignatureDoesNotMatch", "IncompleteSignature", "IncompleteSignatureException"),
        AccessDenied,
        "the signature is not accepted: the secret key of {credentials} does not belong to its key id",
        "enter both keys anew; a proxy that changes requests does the same",
        is_private=True,
    ),
    Row(
        (
            *("UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId", "AuthFailure"),
            *("MissingAuthenticationTokenException", "MissingAuthenticationToken", "InvalidToken"),
        ),
        AccessDenied,
        "the credentials of {credentials} are not known here",
        "check which keys are in use (`aws sts get-caller-identity{profile_flag}`), and that they fit this endpoint",
        is_private=True,
    ),
    Row(
        ("OptInRequired", "SubscriptionRequiredException", "NotSignedUp"),
        AccessDenied,
        "the account may not use {service} yet{message}",
        "finish the account's sign-up in the AWS console",
    ),
    Row(
        ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation"),
        AccessDenied,
        "a network connector may not be passed{message}",
        "allow `lambda:PassNetworkConnector` on that connector; managed and default connectors need it too",
        says=r"PassNetworkConnector|network-connector",
    ),
    Row(
        ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation"),
        AccessDenied,
        "the execution role may not be passed{message}",
        "allow `iam:PassRole` on that role for lambda.amazonaws.com",
        says=r"PassRole",
    ),
    Row(
        ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "401", "403"),
        AccessDenied,
        "{credentials} may not do this{message}",
        "ask for the permission `{action}`",
    ),
    Row(
        ("ServiceQuotaExceededException", "LimitExceededException"),
        QuotaExceeded,
        "the account's memory limit is reached{message}",
        "suspended sandboxes count too: end some with `sbx rm`, or raise quota L-CD1C0CC4 in Service Quotas",
        says=r"allocated memory",
    ),
    Row(
        ("ServiceQuotaExceededException", "LimitExceededException", "402"),
        QuotaExceeded,
        "a limit of the account is reached{message}",
        "end what is no longer needed, or raise the quota {quota}in Service Quotas",
    ),
    Row(
        (
            *("ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded", "Throttling", "SlowDown"),
            *("RequestThrottled", "RequestThrottledException", "429"),
        ),
        Throttled,
        "too many requests{message}",
        "wait a moment; the account's request rate is shared by everything that uses it",
    ),
    Row(
        ("UnknownOperationException", "UnknownOperation", "InvalidAction"),
        Unsupported,
        "the server does not know this operation",
        "{endpoint_hint}",
    ),
    Row(
        ("InsufficientCapacityException",),
        ControlUnavailable,
        "AWS has no capacity for this now{message}",
        "try again in some minutes, or use another region",
    ),
    Row(
        ("ValidationException", "InvalidParameterValueException"),
        UsageError,
        "an ARN is not complete{message}",
        _FULL_ARN,
        says=r"malformed arn|invalid arn",
    ),
    Row(
        ("ValidationException", "InvalidParameterValueException"),
        UsageError,
        "a network connector is not known{message}",
        "managed ones are ALL_INGRESS, HTTP_INGRESS, NO_INGRESS, SHELL_INGRESS and INTERNET_EGRESS, as full ARNs",
        says=r"network connector",
    ),
    Row(
        ("ValidationException", "InvalidParameterValueException"),
        Conflict,
        "the name is taken{message}",
        "choose another name; a deleted image keeps its name for about a minute",
        says=r"already exists",
    ),
    Row(
        ("ValidationException",),
        Unsupported,
        "the image was built without a run hook{message}",
        "rebuild it with `sbx image build --hooks`",
        says=r"run hook must be enabled",
    ),
    Row(
        ("ValidationException",),
        UsageError,
        "logs need an execution role{message}",
        "give one with --role, or leave the log group out",
        says=r"without providing executionRoleArn",
    ),
    Row(
        ("ValidationException", "InvalidParameterValueException", "InvalidRequestContentException", "400"),
        UsageError,
        "the request is not accepted{message}",
        "check the values given",
    ),
    Row(
        ("IsolationUnavailableException",),
        RuntimeUnavailable,
        "it cannot be isolated as asked for{message}",
        "`sbx local setup` fetches gVisor; `sbx doctor` says what works",
        is_final=True,
    ),
    Row(
        ("ConflictException", "ResourceConflictException", "409"),
        Conflict,
        "its state forbids this now{message}",
        "look at its state with `sbx ls`, wait until it settles, and try again",
    ),
)

# Errors without an answer, by botocore's class name.
UNANSWERED: tuple[Row, ...] = (
    Row(
        ("NoCredentialsError",),
        AccessDenied,
        "there are no AWS credentials",
        "sign in (`aws configure` or `aws sso login{profile_flag}`), or use this machine with `--context local`",
        is_private=True,
    ),
    Row(
        ("PartialCredentialsError",),
        AccessDenied,
        "the AWS credentials of {credentials} are incomplete{message}",
        "set both the key id and the secret key",
    ),
    Row(
        (
            *("SSOTokenLoadError", "UnauthorizedSSOTokenError", "SSOError", "TokenRetrievalError", "NoAuthTokenError"),
            *("LoginRefreshRequired", "LoginTokenLoadError", "LoginError", "LoginInsufficientPermissions"),
        ),
        AccessDenied,
        "the sign-in of {credentials} has ended",
        _SIGN_IN,
        is_private=True,
    ),
    Row(
        ("CredentialRetrievalError", "MetadataRetrievalError", "RefreshWithMFAUnsupportedError"),
        AccessDenied,
        "credentials of {credentials} could not be fetched{message}",
        "run `aws sts get-caller-identity{profile_flag}` to see why",
    ),
    Row(
        ("ProfileNotFound",),
        AccessDenied,
        "the AWS profile `{profile}` does not exist",
        "`aws configure list-profiles` lists them; choose one with --profile",
    ),
    Row(
        ("ConfigParseError", "ConfigNotFound", "InvalidConfigError"),
        UsageError,
        "the AWS configuration cannot be read{message}",
        "correct ~/.aws/config or ~/.aws/credentials",
    ),
    Row(
        ("NoRegionError",),
        UsageError,
        "no region is set",
        "give one with --region; sandboxes run in {regions}",
    ),
    Row(
        ("InvalidRegionError", "EndpointResolutionError", "UnknownEndpointError", "EndpointProviderError"),
        UsageError,
        "the region or endpoint is not usable{message}",
        "sandboxes run in {regions}",
    ),
    Row(
        ("UnknownServiceError", "DataNotFoundError"),
        Unsupported,
        "the installed boto3 is too old to know {service}",
        "upgrade it: `pip install --upgrade boto3`",
    ),
    Row(
        ("SSLError",),
        ControlUnavailable,
        "the server's certificate is not trusted{message}",
        "behind a company proxy, name its CA file in AWS_CA_BUNDLE",
        is_final=True,
    ),
    Row(
        ("ProxyConnectionError", "InvalidProxiesConfigError"),
        ControlUnavailable,
        "the proxy does not answer{message}",
        "check HTTPS_PROXY and NO_PROXY",
    ),
    Row(
        ("ReadTimeoutError",),
        ControlUnavailable,
        "no answer in time from {endpoint}",
        "it may still have been done; try again",
    ),
    Row(
        ("EndpointConnectionError", "ConnectTimeoutError", "ConnectionClosedError", "ConnectionError"),
        ControlUnavailable,
        "cannot reach {endpoint}",
        "{endpoint_hint}",
    ),
    Row(
        ("HTTPClientError", "ResponseStreamingError", "IncompleteReadError"),
        ControlUnavailable,
        "the connection to {endpoint} broke{message}",
        "try again",
    ),
    NO_AWS_ANSWER,
    Row(("ParamValidationError",), UsageError, "the request is not valid{message}", "check the values given"),
)
