#include "server/batches.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/json.h"
#include "server/answers.h"
#include "server/multipart.h"
#include "server/request.h"
#include "server/upload.h"

namespace nunspark::server {
namespace {

constexpr std::string_view kFiles = "/v1/files";
constexpr std::string_view kBatches = "/v1/batches";

constexpr size_t kMostFieldBytes = 4096;  // of a form, but for the file
constexpr size_t kPartBytes = 256 << 10;

constexpr int64_t kMostListed = 100;  // batches; files: kMostFiles
constexpr int64_t kUsuallyListed = 20;
constexpr int64_t kLeastExpiry = 3600, kMostExpiry = 30 * 24 * 3600;  // seconds that a file is kept
constexpr int64_t kMostWindow = 30 * 24 * 3600;                       // seconds that a batch may take
constexpr size_t kMostMetadata = 16, kMostMetadataKey = 64, kMostMetadataValue = 512;

// A full disk is none of a client's rate.
HttpResponse ErrorOf(const Status& status) {
  const bool full = status.code() == StatusCode::kResourceExhausted;
  return OpenAiError(full ? 507 : HttpStatusOf(status), status.message());
}

HttpResponse NoSuch(std::string_view what, const std::string& id) {
  return OpenAiError(404, fmt::format("there is no {} '{}'", what, id), "not_found");
}

HttpResponse Ok(const Json& json) { return {.body = WriteJson(json)}; }

Json OrNull(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(); }
Json OrNull(const std::optional<std::string>& value) { return value ? Json(*value) : Json(); }

Json ParsedOrNull(const std::string& text) {
  if (text.empty()) return Json();
  Result<Json> json = ParseJson(text, "stored");
  return json.ok() ? std::move(json).value() : Json();
}

Json JsonOf(const FileRecord& file) {
  return Json::Object{{"id", file.id},
                      {"object", "file"},
                      {"bytes", file.bytes},
                      {"created_at", file.created_at},
                      {"expires_at", OrNull(file.expires_at)},
                      {"filename", file.filename},
                      {"purpose", file.purpose},
                      {"status", "processed"},
                      {"status_details", Json()}};
}

Json JsonOf(const BatchRecord& batch) {
  return Json::Object{{"id", batch.id},
                      {"object", "batch"},
                      {"endpoint", batch.endpoint},
                      {"errors", ParsedOrNull(batch.errors)},
                      {"input_file_id", batch.input_file_id},
                      {"completion_window", batch.completion_window},
                      {"status", BatchStatusName(batch.status)},
                      {"output_file_id", OrNull(batch.output_file_id)},
                      {"error_file_id", OrNull(batch.error_file_id)},
                      {"created_at", batch.created_at},
                      {"in_progress_at", OrNull(batch.in_progress_at)},
                      {"expires_at", batch.expires_at},
                      {"finalizing_at", OrNull(batch.finalizing_at)},
                      {"completed_at", OrNull(batch.completed_at)},
                      {"failed_at", OrNull(batch.failed_at)},
                      {"expired_at", OrNull(batch.expired_at)},
                      {"cancelling_at", OrNull(batch.cancelling_at)},
                      {"cancelled_at", OrNull(batch.cancelled_at)},
                      {"request_counts",
                       Json::Object{{"total", batch.total}, {"completed", batch.completed}, {"failed", batch.failed}}},
                      {"metadata", ParsedOrNull(batch.metadata)}};
}

// A page of a list: `records` may hold one more than `limit`, which tells that there are more.
template <typename Record>
HttpResponse ListOf(std::vector<Record> records, int64_t limit) {
  const bool more = std::ssize(records) > limit;
  if (more) records.pop_back();
  Json::Array data;
  for (const Record& record : records) data.push_back(JsonOf(record));
  const auto id = [](const Record& record) { return Json(record.id); };
  return Ok(Json::Object{{"object", "list"},
                         {"data", std::move(data)},
                         {"first_id", records.empty() ? Json() : id(records.front())},
                         {"last_id", records.empty() ? Json() : id(records.back())},
                         {"has_more", more}});
}

// Of "a=b&c=d"; ids and words need no decoding, and what does is no value of ours.
std::string QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) return std::string(pair.substr(std::min(equals + 1, pair.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

// The whole text as a number; nullopt: it is none.
std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<int64_t> LimitOf(std::string_view query, int64_t usual, int64_t most) {
  const std::string text = QueryValue(query, "limit");
  if (text.empty()) return usual;
  const std::optional<int64_t> limit = NumberOf(text);
  if (limit && *limit >= 1 && *limit <= most) return *limit;
  return InvalidArgumentError(fmt::format("\"limit\" must be a number from 1 to {}, found '{}'", most, text));
}

// "24h" in seconds.
Result<int64_t> WindowOf(const std::string& text) {
  constexpr std::pair<char, int64_t> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  for (const auto& [unit, seconds] : kUnits) {
    if (text.empty() || text.back() != unit) continue;
    const std::optional<int64_t> count = NumberOf(std::string_view(text).substr(0, text.size() - 1));
    if (count && *count >= 1 && *count <= kMostWindow / seconds) return *count * seconds;
  }
  return InvalidArgumentError(
      fmt::format("\"completion_window\" must be a time like \"24h\", from \"1s\" to \"30d\", found '{}'", text));
}

Status CheckExpiry(const std::string& anchor, std::optional<int64_t> seconds, const char* name) {
  if (anchor != "created_at") return InvalidArgumentError(fmt::format("\"{}\": \"anchor\" must be created_at", name));
  if (seconds && *seconds >= kLeastExpiry && *seconds <= kMostExpiry) return Status();
  return InvalidArgumentError(
      fmt::format("\"{}\": \"seconds\" must be a number from {} to {}", name, kLeastExpiry, kMostExpiry));
}

Status CheckMetadata(const Json& metadata) {
  const auto wrong = [] {
    return InvalidArgumentError(
        fmt::format("\"metadata\" must be an object of at most {} strings, with names of up to {} bytes and values of "
                    "up to {}",
                    kMostMetadata, kMostMetadataKey, kMostMetadataValue));
  };
  if (!metadata.is_object() || metadata.as_object().size() > kMostMetadata) return wrong();
  for (const auto& [key, value] : metadata.as_object()) {
    if (key.size() > kMostMetadataKey || !value.is_string() || value.as_string().size() > kMostMetadataValue) {
      return wrong();
    }
  }
  return Status();
}

// An upload's form: the file goes to the drive as it comes.
class Upload : public MultipartHandler {
 public:
  // Of `store` only what needs no database is used.
  explicit Upload(const BatchStore& store) : store_(store) {}

  Status OnField(const MultipartField& field) override {
    field_ = field.name;
    value_.clear();
    if (field_ != "file") return Status();
    if (file_) return InvalidArgumentError("the form has more than one \"file\"");
    record_.id = "file-" + NewId(32);
    record_.filename = SafeFileName(field.filename.value_or(""));
    ASSIGN_OR_RETURN(file_, store_.CreateFile(record_.id));
    return Status();
  }
  Status OnData(std::string_view data) override {
    if (field_ == "file") {
      record_.bytes += std::ssize(data);
      return file_->Append(data);
    }
    if (value_.size() + data.size() > kMostFieldBytes) {
      return InvalidArgumentError(
          fmt::format("the form's field \"{}\" is longer than {} bytes", field_, kMostFieldBytes));
    }
    value_ += data;
    return Status();
  }
  Status OnFieldEnd() override {
    if (field_ == "purpose") record_.purpose = value_;
    if (field_ == "expires_after[anchor]") anchor_ = value_;
    if (field_ == "expires_after[seconds]") seconds_ = value_;
    return Status();
  }

  // After the last field: on the drive, under its name.
  Result<FileRecord> Finish() {
    if (record_.purpose != "batch") {
      return InvalidArgumentError(fmt::format("\"purpose\" must be batch, found '{}'", record_.purpose));
    }
    if (!file_) return InvalidArgumentError("the form has no \"file\"");
    record_.created_at = UnixTime();
    if (!anchor_.empty() || !seconds_.empty()) {
      const std::optional<int64_t> seconds = NumberOf(seconds_);
      RETURN_IF_ERROR(CheckExpiry(anchor_, seconds, "expires_after"));
      record_.expires_at = record_.created_at + *seconds;
    }
    RETURN_IF_ERROR(file_->Commit());
    return record_;
  }

 private:
  const BatchStore& store_;
  FileRecord record_;
  std::optional<AtomicFile> file_;
  std::string field_, value_, anchor_, seconds_;
};

class BatchesImpl : public Batches {
 public:
  BatchesImpl(const DataFolder& folder, BatchStore store) : folder_(folder), store_(std::move(store)) {}
  ~BatchesImpl() override { Close(); }

  Status Start(BatchRunnerOptions options) override {
    ASSIGN_OR_RETURN(BatchStore feeder, BatchStore::Open(folder_));
    ASSIGN_OR_RETURN(BatchStore keeper, BatchStore::Open(folder_));
    runner_ = std::make_unique<BatchRunner>(std::move(feeder), std::move(keeper), std::move(options));
    return Status();
  }

  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    if (!IsUpload(request)) {
      boost::asio::post(thread_, [this, request = std::move(request), exchange = std::move(exchange)] {
        exchange->Send(Answer(request));
      });
      return;
    }
    boost::asio::post(uploads_, [this, request = std::move(request), exchange = std::move(exchange)] {
      Result<FileRecord> file = TakeUpload(request);
      boost::asio::post(thread_, [this, file = std::move(file), exchange] { exchange->Send(AddFile(file)); });
    });
  }

  void Stop() override {
    if (runner_ != nullptr) runner_->Stop();
  }
  void Close() override {
    Stop();
    for (boost::asio::thread_pool* const threads : {&uploads_, &thread_}) {
      threads->stop();
      threads->join();
    }
  }

  void AddTo(PrometheusText& text) const override {
    const BatchCounts counts = runner_ != nullptr ? runner_->counts() : BatchCounts{};
    text.Gauge("batches_open", "Batches that have not ended.", counts.open);
    text.Gauge("batch_lines_running", "Lines of batches on their way.", counts.lines_running);
    text.Counter("batch_lines_completed_total", "Lines that were answered.", counts.lines_completed);
    text.Counter("batch_lines_failed_total", "Lines that were answered with an error.", counts.lines_failed);
    text.Counter("batch_lines_withdrawn_total", "Lines taken back because other requests came, to be run later.",
                 counts.lines_withdrawn);
  }

 private:
  HttpResponse Answer(const HttpRequest& request) {
    const std::string& path = request.path;
    const std::string_view root = path.starts_with(kFiles) ? kFiles : kBatches;
    const bool files = root == kFiles;
    std::string id = path.substr(std::min(root.size() + 1, path.size()));
    std::string action;
    if (const size_t slash = id.find('/'); slash != std::string::npos) {
      action = id.substr(slash + 1);
      id.erase(slash);
    }
    const std::string& method = request.method;
    const bool read = method == "GET" || method == "HEAD";
    const char* takes = nullptr;
    if (id.empty() && action.empty()) {
      if (read) return files ? ListFiles(request.query) : ListBatches(request.query);
      if (!files && method == "POST") return AddBatch(request.body);
      takes = "GET, POST";
    } else if (action.empty()) {
      if (read) return files ? GetFile(id) : GetBatch(id);
      if (files && method == "DELETE") return DeleteFile(id);
      takes = files ? "GET, DELETE" : "GET";
    } else if (files && action == "content") {
      if (read) return Content(id);
      takes = "GET";
    } else if (!files && action == "cancel") {
      if (method == "POST") return CancelBatch(id);
      takes = "POST";
    }
    if (takes == nullptr) return OpenAiError(404, fmt::format("there is no {}", path), "not_found");
    HttpResponse response = OpenAiError(405, fmt::format("{} takes {}", path, takes));
    response.headers.emplace_back("Allow", takes);
    return response;
  }

  // ---- files

  HttpResponse AddFile(const Result<FileRecord>& file) {
    if (!file.ok()) return ErrorOf(file.status());
    if (const Status status = store_.AddFile(*file); !status.ok()) {
      store_.DiscardFile(file->id);
      return ErrorOf(status);
    }
    return Ok(JsonOf(*file));
  }

  // Of the thread of uploads.
  Result<FileRecord> TakeUpload(const HttpRequest& request) {
    ASSIGN_OR_RETURN(const std::string boundary, MultipartReader::BoundaryOf(request.Header("content-type")));
    Upload upload(store_);
    MultipartReader reader(boundary, upload);
    if (request.body_file == nullptr) {
      RETURN_IF_ERROR(reader.Push(request.body));
    } else {
      ASSIGN_OR_RETURN(const int64_t size, request.body_file->Size());
      std::string part;
      for (int64_t at = 0; at < size; at += std::ssize(part)) {
        part.resize(static_cast<size_t>(std::min<int64_t>(size - at, kPartBytes)));
        RETURN_IF_ERROR(request.body_file->ReadAt(at, {reinterpret_cast<uint8_t*>(part.data()), part.size()}));
        RETURN_IF_ERROR(reader.Push(part));
      }
    }
    RETURN_IF_ERROR(reader.Finish());
    return upload.Finish();
  }

  HttpResponse ListFiles(const std::string& query) {
    const Result<int64_t> limit = LimitOf(query, kMostFiles, kMostFiles);
    if (!limit.ok()) return ErrorOf(limit.status());
    const std::string order = QueryValue(query, "order");
    if (!order.empty() && order != "asc" && order != "desc") {
      return OpenAiError(400, fmt::format("\"order\" must be asc or desc, found '{}'", order));
    }
    Result<std::vector<FileRecord>> files = store_.ListFiles({.purpose = QueryValue(query, "purpose"),
                                                              .after = QueryValue(query, "after"),
                                                              .limit = *limit + 1,
                                                              .ascending = order == "asc"});
    return files.ok() ? ListOf(std::move(files).value(), *limit) : ErrorOf(files.status());
  }

  HttpResponse GetFile(const std::string& id) {
    const Result<std::optional<FileRecord>> file = store_.FindFile(id);
    if (!file.ok()) return ErrorOf(file.status());
    return *file ? Ok(JsonOf(**file)) : NoSuch("file", id);
  }

  HttpResponse Content(const std::string& id) {
    const Result<std::optional<FileRecord>> record = store_.FindFile(id);
    if (!record.ok()) return ErrorOf(record.status());
    if (!*record) return NoSuch("file", id);
    Result<File> file = store_.OpenFile((*record)->id);
    // It is known, so it is the server that has lost it.
    if (!file.ok()) return OpenAiError(500, file.status().message());
    return {.content_type = "application/octet-stream",
            .body_file = std::make_shared<const File>(std::move(file).value())};
  }

  HttpResponse DeleteFile(const std::string& id) {
    const Result<BatchStore::Deletion> deleted = store_.DeleteFile(id);
    if (!deleted.ok()) return ErrorOf(deleted.status());
    switch (*deleted) {
      case BatchStore::Deletion::kNotFound: return NoSuch("file", id);
      case BatchStore::Deletion::kInUse:
        return OpenAiError(409, fmt::format("the file '{}' is the input of a batch that has not ended", id));
      case BatchStore::Deletion::kDone: break;
    }
    return Ok(Json::Object{{"id", id}, {"object", "file"}, {"deleted", true}});
  }

  // ---- batches

  HttpResponse AddBatch(const std::string& body) {
    Result<BatchRecord> batch = ParseBatch(body);
    if (!batch.ok()) return OpenAiError(400, batch.status().message());
    const Status status = store_.AddBatch(*batch);
    if (status.code() == StatusCode::kNotFound) return OpenAiError(400, "\"input_file_id\": " + status.message());
    if (!status.ok()) return ErrorOf(status);
    if (runner_ != nullptr) runner_->Wake();
    return Ok(JsonOf(*batch));
  }

  static Result<BatchRecord> ParseBatch(const std::string& body) {
    ASSIGN_OR_RETURN(const Json json, ParseBody(body));
    if (!json.is_object()) return InvalidArgumentError("the request's body must be a JSON object");
    const auto text_of = [&json](const char* name) -> Result<std::string> {
      const Json* const value = json.Find(name);
      if (value != nullptr && value->is_string()) return value->as_string();
      if (value == nullptr) return InvalidArgumentError(fmt::format("\"{}\" is missing", name));
      return WrongField(name, "a string", *value);
    };
    BatchRecord batch;
    batch.id = "batch_" + NewId(32);
    ASSIGN_OR_RETURN(batch.input_file_id, text_of("input_file_id"));
    ASSIGN_OR_RETURN(batch.endpoint, text_of("endpoint"));
    const std::span<const std::string_view> endpoints = BatchEndpoints();
    if (std::find(endpoints.begin(), endpoints.end(), batch.endpoint) == endpoints.end()) {
      return InvalidArgumentError(
          fmt::format("\"endpoint\" must be one of {}, found '{}'", fmt::join(endpoints, ", "), batch.endpoint));
    }
    ASSIGN_OR_RETURN(batch.completion_window, text_of("completion_window"));
    ASSIGN_OR_RETURN(const int64_t window, WindowOf(batch.completion_window));
    batch.created_at = UnixTime();
    batch.expires_at = batch.created_at + window;
    if (const Json* const metadata = json.Find("metadata"); metadata != nullptr && !metadata->is_null()) {
      RETURN_IF_ERROR(CheckMetadata(*metadata));
      batch.metadata = WriteJson(*metadata);
    }
    if (const Json* const expiry = json.Find("output_expires_after"); expiry != nullptr && !expiry->is_null()) {
      const Json* const anchor = expiry->Find("anchor");
      const Json* const seconds = expiry->Find("seconds");
      if (seconds != nullptr && seconds->is_int()) batch.output_expires_after_s = seconds->as_int();
      RETURN_IF_ERROR(CheckExpiry(anchor != nullptr && anchor->is_string() ? anchor->as_string() : "",
                                  batch.output_expires_after_s, "output_expires_after"));
    }
    return batch;
  }

  HttpResponse ListBatches(const std::string& query) {
    const Result<int64_t> limit = LimitOf(query, kUsuallyListed, kMostListed);
    if (!limit.ok()) return ErrorOf(limit.status());
    Result<std::vector<BatchRecord>> batches = store_.ListBatches(QueryValue(query, "after"), *limit + 1);
    return batches.ok() ? ListOf(std::move(batches).value(), *limit) : ErrorOf(batches.status());
  }

  HttpResponse GetBatch(const std::string& id) {
    const Result<std::optional<BatchRecord>> batch = store_.FindBatch(id);
    if (!batch.ok()) return ErrorOf(batch.status());
    return *batch ? Ok(JsonOf(**batch)) : NoSuch("batch", id);
  }

  HttpResponse CancelBatch(const std::string& id) {
    const Result<bool> cancelled = store_.CancelBatch(id, UnixTime());
    if (!cancelled.ok()) return ErrorOf(cancelled.status());
    if (*cancelled && runner_ != nullptr) runner_->Wake();
    const Result<std::optional<BatchRecord>> batch = store_.FindBatch(id);
    if (!batch.ok()) return ErrorOf(batch.status());
    if (!*batch) return NoSuch("batch", id);
    const BatchStatus status = (*batch)->status;
    if (*cancelled || status == BatchStatus::kCancelling || status == BatchStatus::kCancelled)
      return Ok(JsonOf(**batch));
    return OpenAiError(409, fmt::format("a batch that is {} cannot be cancelled", BatchStatusName(status)));
  }

  const DataFolder& folder_;
  BatchStore store_;  // of the thread
  std::unique_ptr<BatchRunner> runner_;
  boost::asio::thread_pool thread_{1};
  boost::asio::thread_pool uploads_{1};  // which take long, and no store
};

}  // namespace

Result<std::unique_ptr<Batches>> Batches::Open(const DataFolder& folder) {
  ASSIGN_OR_RETURN(BatchStore store, BatchStore::Open(folder));
  RETURN_IF_ERROR(store.Recover());
  return std::unique_ptr<Batches>(std::make_unique<BatchesImpl>(folder, std::move(store)));
}

bool Batches::Routes(const std::string& path) {
  for (const std::string_view root : {kFiles, kBatches}) {
    if (path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/')) return true;
  }
  return false;
}

bool Batches::IsUpload(const HttpRequest& head) { return head.method == "POST" && head.path == kFiles; }

HttpResponse Batches::NotThere() {
  return OpenAiError(501, "this server keeps no files and runs no batches; start it with --data-dir DIR",
                     "data_dir_missing");
}

std::string BatchesDocument() {
  return fmt::format(R"md(
## /v1/files, /v1/batches

Of servers with `--data-dir`; others answer 501. What one client uploads all clients see.

| request | |
|---|---|
| `POST /v1/files` | a form with `purpose` (batch), `file`, and, if it shall go away by itself, `expires_after[anchor]` (created_at) and `expires_after[seconds]` ({0} to {1}); up to `--max-upload` bytes |
| `GET /v1/files` | `purpose`, `limit`, `after`, `order` |
| `GET /v1/files/ID`, `GET /v1/files/ID/content`, `DELETE /v1/files/ID` | the input of a batch that has not ended is not deleted: 409 |
| `POST /v1/batches` | `input_file_id`, `endpoint`, `completion_window` ("24h", or any other from "1s" to "30d"), `metadata`, `output_expires_after` |
| `GET /v1/batches` | `limit`, `after` |
| `GET /v1/batches/ID`, `POST /v1/batches/ID/cancel` | |

A line of the input is `{{"custom_id", "method": "POST", "url", "body"}}`; `url` is the batch's endpoint, one of {2}. Up to
{3} lines; a `custom_id` stands once. Inputs that break a rule end as `failed`, with code and line in `errors`:
`invalid_json_line`, `missing_required_parameter`, `invalid_value`, `url_mismatch`, `duplicate_custom_id`,
`too_many_tasks`, `empty_file`. The body is answered as the same request alone would be; what is not answered with 200 is
in the error file, as is a body with `stream`. Both files are in the order of the input. Lines run where no other request
wants to; `request_counts` counts those that have an answer. What has run when a batch expires or is cancelled is in its
files, the rest in the error file with the code `batch_expired` or `batch_cancelled`.
)md",
                     kLeastExpiry, kMostExpiry, fmt::join(BatchEndpoints(), ", "), kMostBatchLines);
}

}  // namespace nunspark::server
