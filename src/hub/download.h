// One file of a hub into the cache: resumed, retried, verified, and under its name only when all of it is right.
#ifndef NUNSPARK_HUB_DOWNLOAD_H_
#define NUNSPARK_HUB_DOWNLOAD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "hub/digest.h"
#include "hub/http_client.h"
#include "nunspark/status.h"

namespace nunspark {

struct DownloadControl {
  std::function<bool()> cancelled = [] { return false; };
  // Bytes that are now on the drive and were not before; negative when they turned out to be wrong. Any thread.
  std::function<void(int64_t delta)> progress = [](int64_t) {};
  // Failures in a row, without kProgressBytes between them, after which one is final.
  int max_failures = 6;
  // Before the first repetition; doubles with each, up to a minute. A server's Retry-After counts instead, up to five.
  double backoff_s = 1;
  HttpOptions http = {};  // its `cancelled` is replaced by the one above
};

struct DownloadedFile {
  std::string url;
  std::string token;
  std::string name;   // for messages
  std::string path;   // of the finished file; "<path>.incomplete" until then
  int64_t bytes = 0;  // that it must have
  DigestKind digest_kind = DigestKind::kSha256;
  std::string digest;  // that it must have
};

// Continues "<path>.incomplete" if it is there. The file is synced, verified and then renamed: whatever ends the
// process, `path` is right or not there. On kCancelled and on failures of network and drive the part stays for the next
// call; a content with another hash is removed.
// Errors: kDataLoss for a server that gives other bytes, more or fewer than were listed (expected and found);
// kPermission, kNotFound by HTTP status; kResourceExhausted when the drive is full or the server asks to wait for too
// long; kCancelled; kIo.
Status Download(HttpClient& client, const DownloadedFile& file, const DownloadControl& control);

// A document of at most `max_bytes` into memory, with the same repetitions, but for a server that cannot be reached at
// all: that is asked twice. `what` names it in errors.
Result<std::string> Fetch(HttpClient& client, const HttpRequest& request, int64_t max_bytes, std::string_view what,
                          const DownloadControl& control);

// Its beginning: as much as `missing` asks for, given what is there, until it asks for no more (0 or less).
// Errors: as Fetch; kDataLoss when the document ends before that.
Result<std::string> FetchBeginning(HttpClient& client, const HttpRequest& request, int64_t max_bytes,
                                   std::string_view what, const DownloadControl& control,
                                   const std::function<int64_t(std::string_view text)>& missing);

// What an answer that is not 2xx means. `what`: "model.safetensors of org/name".
Status HttpError(const HttpHead& head, std::string_view what, std::string_view origin);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_DOWNLOAD_H_
