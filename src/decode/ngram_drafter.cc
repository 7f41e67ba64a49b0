#include "decode/ngram_drafter.h"

#include <algorithm>

#include <fmt/format.h>

namespace nunspark {

Status CheckNgramOptions(const NgramOptions& options) {
  const auto check = [](const char* name, int32_t value) {
    if (value >= 1) return Status();
    return InvalidArgumentError(fmt::format("{} must be at least 1, found {}", name, value));
  };
  RETURN_IF_ERROR(check("--ngram-max", options.longest_suffix));
  return check("--num-draft-tokens", options.most_tokens);
}

std::span<const int32_t> FollowingTokens(std::span<const int32_t> history, int32_t longest_suffix, int32_t most) {
  const int64_t size = std::ssize(history);
  for (int64_t length = std::min<int64_t>(longest_suffix, size - 1); length >= 1; --length) {
    const std::span<const int32_t> suffix = history.last(static_cast<size_t>(length));
    for (int64_t at = size - length - 1; at >= 0; --at) {
      if (history[static_cast<size_t>(at)] != suffix[0]) continue;
      if (!std::equal(suffix.begin(), suffix.end(), history.begin() + at)) continue;
      const int64_t next = at + length;
      return history.subspan(static_cast<size_t>(next), static_cast<size_t>(std::min<int64_t>(most, size - next)));
    }
  }
  return {};
}

void NgramLength::Set(int32_t length) {
  length_ = length;
  shortest_ = std::min(shortest_, length);
  longest_ = std::max(longest_, length);
}

int32_t NgramLength::Next() {
  probing_ = false;
  if (length_ > 0) return length_;
  if (++calls_off_ % options_.reprobe_every != 0) {
    ++rounds_off_;
    return 0;
  }
  ++probes_;
  probing_ = true;
  return options_.fewest_tokens;
}

void NgramLength::Observe(int32_t proposed, int32_t accepted) {
  if (!options_.adaptive || proposed == 0 || (length_ == 0 && !probing_)) return;
  const int32_t length = length_ == 0 ? options_.fewest_tokens : length_;
  if (accepted >= proposed - 1 && accepted >= 2) {
    Set(std::min(options_.most_tokens, 2 * length));
  } else if (4 * accepted < proposed) {
    Set(length <= options_.fewest_tokens ? 0 : std::max(options_.fewest_tokens, length / 2));
  } else {
    Set(length);
  }
  probing_ = false;
}

int32_t NgramDrafter::WantedLength(int32_t slot, int32_t most) {
  return std::min(most, lengths_[static_cast<size_t>(slot)].Next());
}

Status NgramDrafter::Propose(std::span<const DraftRequest> requests, const std::atomic<bool>&) {
  for (const DraftRequest& request : requests) {
    const std::span<const int32_t> following =
        FollowingTokens(request.tokens, options_.longest_suffix, request.shape->depth());
    for (size_t i = 0; i < following.size(); ++i) request.draft->Add(following[i], static_cast<int32_t>(i) - 1);
  }
  return Status();
}

}  // namespace nunspark
