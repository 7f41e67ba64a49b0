#include "server/web_models.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "base/size.h"
#include "engine/outlook.h"

namespace nunspark::server {
namespace {

// Whoever has more models than this waits for badges again.
constexpr size_t kMostBadges = 4096;
constexpr int64_t kUsualContext = 4096;

}  // namespace

WebModels::WebModels(CatalogueOptions options) : options_(std::move(options)), thread_([this] { Run(); }) {}

WebModels::~WebModels() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

Result<Json::Array> WebModels::List() {
  ASSIGN_OR_RETURN(const std::vector<CatalogueEntry> entries, ScanCatalogue(options_));
  Json::Array models;
  const std::lock_guard lock(mutex_);
  if (badges_.size() > kMostBadges) badges_.clear();
  for (const CatalogueEntry& entry : entries) {
    const std::string key = fmt::format("{} {} {}", entry.path, entry.size_bytes, entry.snapshot);
    const auto [badge, is_new] = badges_.try_emplace(key);
    if (is_new) wanted_.emplace_back(key, entry.path);
    models.push_back(Json::Object{{"kind", ModelKindName(entry.kind)},
                                  {"name", entry.name},
                                  {"path", entry.path},
                                  {"size", entry.size_bytes},
                                  {"badge", badge->second}});
  }
  wake_.notify_all();
  return models;
}

Result<std::string> WebModels::PathOf(const std::string& source) const {
  ASSIGN_OR_RETURN(const std::vector<CatalogueEntry> entries, ScanCatalogue(options_));
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const CatalogueEntry& entry) {
    return entry.name == source && entry.kind != ModelKind::kPacked;
  });
  return found == entries.end() ? source : found->path;
}

void WebModels::Run() {
  while (true) {
    std::pair<std::string, std::string> next;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !wanted_.empty(); });
      if (stopping_) return;
      next = std::move(wanted_.front());
      wanted_.pop_front();
    }
    Json badge;
    try {
      badge = Badge(next.second);
    } catch (const std::bad_alloc&) {
      badge = Json(Json::Object{{"state", "unsupported"},
                                {"tok_per_s", Json()},
                                {"text", "not looked at"},
                                {"reason", "there is no memory left to look at it"}});
    }
    const std::lock_guard lock(mutex_);
    badges_[next.first] = std::move(badge);
  }
}

Json WebModels::Badge(const std::string& path) {
  const auto badge = [](std::string_view state, Json rate, std::string text, const std::string& reason) {
    return Json(
        Json::Object{{"state", state}, {"tok_per_s", std::move(rate)}, {"text", std::move(text)}, {"reason", reason}});
  };
  const Result<std::unique_ptr<ModelFilesImpl>> files = ModelFilesImpl::OpenFolder(path);
  if (!files.ok()) {
    const std::optional<Outlook> eagle = EagleOutlook(path);
    return eagle ? badge("drafts", Json(), "draft model", eagle->reason)
                 : badge("unsupported", Json(), "cannot be used", files.status().message());
  }
  EngineOptions options;
  options.context = kUsualContext;
  const Outlook outlook = MakeOutlook(**files, options, rates_.Of(path));
  if (outlook.fit != Fit::kDrafts && !(*files)->has_tokenizer()) {
    return badge("unsupported", Json(), "cannot be used", "it has no tokenizer: it takes no text");
  }
  const double rate = outlook.tokens_per_s;
  Json rate_json = rate > 0 ? Json(rate) : Json();
  const std::string rate_text = rate > 0 ? RateText(outlook) : "speed unknown";
  const std::string weights = FormatSize((*files)->weight_bytes());
  switch (outlook.fit) {
    case Fit::kFits:
      return badge("fits", std::move(rate_json), "fits, " + rate_text,
                   fmt::format("all {} of weights stay in memory; the whole takes {}", weights,
                               FormatSize(outlook.total_bytes)));
    case Fit::kStreams:
      return badge("streams", std::move(rate_json), "streams, " + rate_text,
                   fmt::format("{} of {} of weights stay in memory, the others are read from the drive when a token "
                               "needs them",
                               FormatSize(outlook.budget_bytes), weights));
    case Fit::kDrafts: return badge("drafts", Json(), "draft model", outlook.reason);
    case Fit::kCannot: return badge("unsupported", Json(), "cannot be used", outlook.reason);
    case Fit::kNoRoom: break;
  }
  return badge("too small", Json(), "this machine is too small", outlook.reason);
}

}  // namespace nunspark::server
