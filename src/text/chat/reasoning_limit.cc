#include "text/chat/reasoning_limit.h"

#include <algorithm>

namespace nunspark::text {

int32_t ReasoningLimit::Replace(int32_t chosen) {
  if (!is_closing_ && !given_up_ && parser_.in_reasoning()) {
    const auto ends = [&](int32_t token) {
      return std::find(options_.end_tokens.begin(), options_.end_tokens.end(), token) != options_.end_tokens.end();
    };
    is_closing_ = (options_.budget >= 0 && spent_ >= options_.budget) || ends(chosen);
  }
  return is_closing_ ? options_.end_text[closing_] : chosen;
}

void ReasoningLimit::Advance(int32_t token) {
  if (!is_closing_ && parser_.in_reasoning()) ++spent_;
  parser_.Push(decoder_.Push(token), deltas_);
  deltas_.clear();
  if (!is_closing_ || ++closing_ < options_.end_text.size()) return;
  is_closing_ = false;
  closing_ = 0;
  given_up_ = parser_.in_reasoning();
}

}  // namespace nunspark::text
