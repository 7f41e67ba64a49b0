#include "weights/expert_trace.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace nunspark {
namespace {

constexpr size_t kWriteBytes = 256 << 10;

// Takes an array of integers of [least, most], ascending without repetition if `ascending`.
bool TakeNumbers(const Json& line, std::string_view key, int64_t most, bool ascending, std::vector<int32_t>& values) {
  const Json* const found = line.Find(key);
  if (found == nullptr || !found->is_array()) return false;
  for (const Json& value : found->as_array()) {
    if (!value.is_int() || value.as_int() < 0 || value.as_int() > most) return false;
    const auto number = static_cast<int32_t>(value.as_int());
    if (ascending && !values.empty() && number <= values.back()) return false;
    values.push_back(number);
  }
  return true;
}

bool TakeCall(const Json& line, const ModelLayout& layout, ExpertCall& call) {
  constexpr int64_t kMostRows = 1 << 30;
  const Json* const layer = line.Find("layer");
  const Json* const rows = line.Find("batch_tokens");
  if (layer == nullptr || !layer->is_int() || rows == nullptr || !rows->is_int()) return false;
  const auto layers = static_cast<int64_t>(layout.first_expert.size());
  if (layer->as_int() < 0 || layer->as_int() >= layers) return false;
  if (layout.first_expert[static_cast<size_t>(layer->as_int())] < 0) return false;
  if (rows->as_int() < 1 || rows->as_int() > kMostRows) return false;
  call.layer = static_cast<int32_t>(layer->as_int());
  call.batch_tokens = rows->as_int();
  if (!TakeNumbers(line, "fired", layout.hparams.experts - 1, true, call.fired) || call.fired.empty()) return false;
  if (const Json* const sequences = line.Find("sequences"); sequences != nullptr) {
    if (!sequences->is_int() || sequences->as_int() < 1 || sequences->as_int() > call.batch_tokens) return false;
    call.sequences = static_cast<int32_t>(sequences->as_int());
    if (!TakeNumbers(line, "row_counts", call.batch_tokens, false, call.row_counts) ||
        call.row_counts.size() != call.fired.size()) {
      return false;
    }
  }
  if (line.Find("last_rows") == nullptr) {
    call.last_rows.assign(call.fired.size(), static_cast<int32_t>(call.batch_tokens - 1));
    return true;
  }
  return TakeNumbers(line, "last_rows", call.batch_tokens - 1, false, call.last_rows) &&
         call.last_rows.size() == call.fired.size();
}

}  // namespace

Result<std::unique_ptr<ExpertTraceWriter>> ExpertTraceWriter::Create(const std::string& path,
                                                                     const ModelLayout& layout) {
  ASSIGN_OR_RETURN(File file, File::Create(path));
  return std::unique_ptr<ExpertTraceWriter>(new ExpertTraceWriter(std::move(file), layout));
}

void ExpertTraceWriter::Add(const RoutedExperts& routed, const PassInfo& pass) {
  const PieceId first = layout_.first_expert[static_cast<size_t>(routed.layer)];
  fired_.clear();
  for (size_t i = 0; i < routed.pieces.size(); ++i) {
    fired_.push_back({.expert = routed.pieces[i] - first,
                      .last_row = routed.last_rows[i],
                      .rows = routed.row_counts.empty() ? 1 : routed.row_counts[i]});
  }
  std::sort(fired_.begin(), fired_.end(), [](const Fired& a, const Fired& b) { return a.expert < b.expert; });
  const auto out = std::back_inserter(text_);
  const auto list = [&](int32_t Fired::*number) {
    for (const Fired& fired : fired_) fmt::format_to(out, "{}{}", &fired == &fired_.front() ? "[" : ",", fired.*number);
    text_ += "]";
  };
  fmt::format_to(out, "{{\"t\":{},\"layer\":{},\"fired\":", calls_++, routed.layer);
  list(&Fired::expert);
  fmt::format_to(out, ",\"batch_tokens\":{}", pass.rows);
  if (pass.rows > 1) {
    text_ += ",\"last_rows\":";
    list(&Fired::last_row);
  }
  if (pass.sequences > 1) {
    fmt::format_to(out, ",\"sequences\":{},\"row_counts\":", pass.sequences);
    list(&Fired::rows);
  }
  text_ += "}\n";
  if (text_.size() >= kWriteBytes) (void)Flush();
}

Status ExpertTraceWriter::Flush() {
  if (status_.ok()) {
    status_ = file_.WriteAt(bytes_, {reinterpret_cast<const uint8_t*>(text_.data()), text_.size()});
    bytes_ += static_cast<int64_t>(text_.size());
  }
  text_.clear();
  return status_;
}

Result<ExpertTrace> LoadExpertTrace(const std::string& path, const ModelLayout& layout) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  ExpertTrace trace;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string what = fmt::format("{} line {}", path, trace.size() + 1);
    ASSIGN_OR_RETURN(const Json line, ParseJson(std::string_view(text).substr(begin, end - begin), what));
    begin = end + 1;
    ExpertCall call;
    if (!TakeCall(line, layout, call)) {
      return DataLossError(fmt::format("{}: not a call of a layer with experts of this model ({} layers, {} experts)",
                                       what, layout.first_expert.size(), layout.hparams.experts));
    }
    trace.push_back(std::move(call));
  }
  if (trace.empty()) return DataLossError(path + ": no calls of layers with experts in this trace");
  return trace;
}

}  // namespace nunspark
