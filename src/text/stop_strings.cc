#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace nunspark::text {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, std::string());
}

std::string StopStrings::Push(std::string_view text) {
  if (matched()) return {};
  held_ += text;
  // The first to be complete, of two at once the longer one: so it does not matter in what pieces the text comes.
  size_t begin = 0, end = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t at = held_.find(stops_[i]);
    if (at == std::string::npos) continue;
    const size_t its_end = at + stops_[i].size();
    if (its_end > end || (its_end == end && at >= begin)) continue;
    begin = at;
    end = its_end;
    matched_ = static_cast<int>(i);
  }
  if (matched()) return std::exchange(held_, {}).substr(0, begin);
  // The longest end of the text that begins a stop string.
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > kept; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) kept = length;
    }
  }
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return certain;
}

std::string StopStrings::Finish() { return matched() ? std::string() : std::exchange(held_, {}); }

}  // namespace nunspark::text
