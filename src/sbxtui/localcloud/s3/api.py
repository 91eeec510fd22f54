"""What is answered of S3: buckets made, listed and removed; objects put, whole or in parts, listed, got and removed."""

from __future__ import annotations

import asyncio
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from sbxtui.localcloud.faults import Fault, FaultBody
from sbxtui.localcloud.s3.bodies import CHECKSUM, Incoming, Upload
from sbxtui.localcloud.s3.chunksigs import ChunkChain
from sbxtui.localcloud.s3.store import MAX_KEY_BYTES, ObjectStore, Stored
from sbxtui.localcloud.sigv4 import HttpRequest

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
XML = "application/xml"
_PAGE = 1000
_MAX_XML_BYTES = 1 << 20
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEPT_HEADERS = ("content-type", "content-encoding", "content-disposition", "cache-control")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; where there is a `file`, so many bytes of it from `offset` are its body."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    file: Path | None = None
    offset: int = 0
    size_bytes: int = 0


class S3Api:
    """Answers requests whose signature was checked; `region` is where all buckets are."""

    def __init__(self, store: ObjectStore, region: str) -> None:
        self._store = store
        self._region = region

    async def answer(self, request: HttpRequest, body: AsyncIterator[bytes], chain: ChunkChain | None = None) -> Reply:
        """The answer; `chain` checks the chunks of a body that are signed each.

        Raises:
            Fault: What goes wrong, with S3's code.
            OSError: The disk is full.
        """
        bucket, _, key = (unquote(part) for part in request.raw_path.lstrip("/").partition("/"))
        query = dict(parse_qsl(request.query, keep_blank_values=True))
        if not bucket:
            return self._list_buckets(request)
        if not key:
            return self._bucket(request, bucket, query)
        if not self._store.has_bucket(bucket):
            raise _missing("NoSuchBucket", "The specified bucket does not exist")
        if len(key.encode()) > MAX_KEY_BYTES:
            raise _refused("KeyTooLongError", "Your key is too long")
        headers = {name: value for name, value in request.headers}
        match request.method:
            case "PUT" if "x-amz-copy-source" in headers:
                raise _refused("NotImplemented", "The local cloud copies no objects", status=501)
            case "PUT":
                return await self._put(bucket, key, query, Incoming(headers, body, chain))
            case "POST":
                return await self._post(bucket, key, query, body)
            case "GET" | "HEAD":
                return self._get(bucket, key, headers.get("range", ""), is_head=request.method == "HEAD")
            case "DELETE":
                return self._delete(bucket, key, query)
            case _:
                raise _refused("MethodNotAllowed", "The specified method is not allowed", status=405)

    # Buckets

    def _list_buckets(self, request: HttpRequest) -> Reply:
        if request.method != "GET":
            raise _refused("MethodNotAllowed", "The specified method is not allowed", status=405)
        rows = "".join(
            f"<Bucket><Name>{name}</Name><CreationDate>{_iso(since)}</CreationDate></Bucket>"
            for name, since in self._store.buckets()
        )
        return _xml("ListAllMyBucketsResult", f"<Owner><ID>local</ID></Owner><Buckets>{rows}</Buckets>")

    def _bucket(self, request: HttpRequest, bucket: str, query: Mapping[str, str]) -> Reply:
        if request.method == "PUT" and not query:
            if not self._store.make_bucket(bucket):
                raise _refused("InvalidBucketName", "The specified bucket is not valid.")
            return Reply(200, (("Location", f"/{bucket}"),))
        if not self._store.has_bucket(bucket):
            raise _missing("NoSuchBucket", "The specified bucket does not exist")
        match request.method:
            case "HEAD":
                return Reply(200, (("x-amz-bucket-region", self._region),))
            case "DELETE":
                if not self._store.remove_bucket(bucket):
                    raise _refused("BucketNotEmpty", "The bucket you tried to delete is not empty", status=409)
                return Reply(204)
            case "GET" if "location" in query:
                return _xml("LocationConstraint", self._region)
            case "GET":
                return self._list_objects(bucket, query)
            case _:
                raise _refused("NotImplemented", "The local cloud does not do this to buckets", status=501)

    def _list_objects(self, bucket: str, query: Mapping[str, str]) -> Reply:
        prefix = query.get("prefix", "")
        after = query.get("continuation-token") or query.get("start-after") or query.get("marker", "")
        most = int(query["max-keys"]) if query.get("max-keys", "").isdigit() else _PAGE
        found = [one for one in self._store.objects(bucket) if one.key.startswith(prefix) and one.key > after]
        page = found[: min(most, _PAGE)]
        is_cut = len(page) < len(found)
        more = f"<NextContinuationToken>{escape(page[-1].key)}</NextContinuationToken>" if is_cut and page else ""
        rows = "".join(
            f"<Contents><Key>{escape(one.key)}</Key><LastModified>{_iso(one.stored_at)}</LastModified>"
            f"<ETag>{escape(one.etag)}</ETag><Size>{one.size_bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for one in page
        )
        return _xml(
            "ListBucketResult",
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(is_cut).lower()}</IsTruncated>{more}{rows}",
        )

    # Objects

    async def _put(self, bucket: str, key: str, query: Mapping[str, str], incoming: Incoming) -> Reply:
        part = self._store.part_of(bucket, uuid.uuid4().hex)
        if "uploadId" in query:
            part = self._part(bucket, query["uploadId"], query.get("partNumber", ""))
        try:
            with part.open("wb") as sink:
                upload = Upload(incoming, sink)
                await upload.take()
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        answered = (("ETag", upload.etag), *upload.checksums.items())
        if "uploadId" not in query:
            kept = _kept(incoming.headers) | upload.checksums
            stored = Stored(key, upload.size_bytes, upload.etag, datetime.now(UTC), kept)
            await asyncio.to_thread(self._store.put, bucket, stored, part)
        return Reply(200, answered)

    async def _post(self, bucket: str, key: str, query: Mapping[str, str], body: AsyncIterator[bytes]) -> Reply:
        named = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
        if "uploads" in query:
            upload_id = uuid.uuid4().hex
            self._part(bucket, upload_id, "0").touch()
            return _xml("InitiateMultipartUploadResult", f"{named}<UploadId>{upload_id}</UploadId>")
        if "uploadId" not in query:
            raise _refused("NotImplemented", "The local cloud does not do this to objects", status=501)
        numbers = _part_numbers(b"".join([piece async for piece in _bounded(body)]))
        parts = [self._part(bucket, query["uploadId"], number) for number in numbers]
        if not all(part.exists() for part in parts):
            raise _refused("InvalidPart", "One or more of the specified parts could not be found.")
        whole = self._store.part_of(bucket, uuid.uuid4().hex)
        size = await asyncio.to_thread(_join, parts, whole)
        etag = f'"{uuid.uuid4().hex}-{len(parts)}"'
        await asyncio.to_thread(self._store.put, bucket, Stored(key, size, etag, datetime.now(UTC)), whole)
        self._forget_parts(bucket, query["uploadId"])
        return _xml("CompleteMultipartUploadResult", f"{named}<ETag>{escape(etag)}</ETag>")

    def _get(self, bucket: str, key: str, wanted: str, *, is_head: bool) -> Reply:
        stored = self._store.find(bucket, key)
        if stored is None:
            raise _missing("NoSuchKey", "The specified key does not exist.")
        status, start, end = _range_of(wanted, stored.size_bytes)
        headers = [
            ("ETag", stored.etag),
            ("Last-Modified", format_datetime(stored.stored_at.astimezone(UTC), usegmt=True)),
            ("Accept-Ranges", "bytes"),
            *(
                (name, value)
                for name, value in stored.headers.items()
                if status == 200 or not name.startswith(CHECKSUM)
            ),
        ]
        if status == 206:
            headers.append(("Content-Range", f"bytes {start}-{end - 1}/{stored.size_bytes}"))
        file = None if is_head else self._store.content_of(bucket, key)
        return Reply(status, tuple(headers), file=file, offset=start, size_bytes=end - start)

    def _delete(self, bucket: str, key: str, query: Mapping[str, str]) -> Reply:
        if "uploadId" in query:
            self._forget_parts(bucket, query["uploadId"])
        else:
            self._store.remove(bucket, key)
        return Reply(204)

    def _part(self, bucket: str, upload_id: str, number: str) -> Path:
        begun = self._store.part_of(bucket, f"{upload_id}-0")
        is_known = upload_id.isalnum() and (number == "0" or begun.exists())
        if not is_known or not number.isdigit() or int(number) > 10_000:
            raise _missing("NoSuchUpload", "The specified upload does not exist.")
        return self._store.part_of(bucket, f"{upload_id}-{int(number)}")

    def _forget_parts(self, bucket: str, upload_id: str) -> None:
        begun = self._part(bucket, upload_id, "0")
        for part in begun.parent.glob(f"{upload_id}-*.part"):
            part.unlink(missing_ok=True)


def error(body: FaultBody, request_id: str) -> bytes:
    """The XML of an error."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{escape(body.code)}</Code>'
        f"<Message>{escape(body.message or '')}</Message><RequestId>{request_id}</RequestId></Error>"
    ).encode()


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    """What comes back with an object. How its upload was cut into chunks is no encoding of it."""
    told = {name: value for name, value in headers.items() if name in _KEPT_HEADERS or name.startswith("x-amz-meta-")}
    codings = [one.strip() for one in told.pop("content-encoding", "").split(",")]
    left = ",".join(one for one in codings if one and one != "aws-chunked")
    return told | ({"content-encoding": left} if left else {})


def _xml(name: str, inner: str) -> Reply:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{NAMESPACE}">{inner}</{name}>'
    return Reply(200, (("Content-Type", XML),), text.encode())


async def _bounded(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    left = _MAX_XML_BYTES
    async for piece in body:
        left -= len(piece)
        if left < 0:
            raise _refused("MalformedXML", "The XML you provided is too large")
        yield piece


def _part_numbers(document: bytes) -> list[str]:
    # The parser expands entities that a document defines, so a document that defines any is refused.
    if b"<!" in document:
        raise _refused("MalformedXML", "The XML you provided was not well-formed")
    try:
        return [node.text or "" for node in ElementTree.fromstring(document).iter() if node.tag.endswith("PartNumber")]
    except ElementTree.ParseError as exc:
        raise _refused("MalformedXML", "The XML you provided was not well-formed") from exc


def _join(parts: Iterable[Path], whole: Path) -> int:
    with whole.open("wb") as sink:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, sink)
        return sink.tell()


def _range_of(wanted: str, size: int) -> tuple[int, int, int]:
    """Status, first byte, and the one behind the last."""
    match = _RANGE.fullmatch(wanted)
    if match is None or match[1] == match[2] == "":
        return 200, 0, size
    if match[1]:
        start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    else:
        start, end = max(0, size - int(match[2])), size
    if start >= end:
        raise _refused("InvalidRange", "The requested range is not satisfiable", status=416)
    return 206, start, end


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _missing(code: str, message: str) -> Fault:
    return _refused(code, message, status=404)


def _refused(code: str, message: str, *, status: int = 400) -> Fault:
    return Fault(FaultBody(code, status, message))
