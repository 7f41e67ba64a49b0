#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "base/size.h"

namespace nunspark::cli {
namespace {

constexpr auto kFirstDraw = std::chrono::seconds(2);
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr int kBarWidth = 28;

std::string TimeText(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

std::string RateText(ProgressUnit unit, double rate) {
  switch (unit) {
    case ProgressUnit::kBytes: return FormatSize(static_cast<int64_t>(rate)) + "/s";
    case ProgressUnit::kTokens: return fmt::format("{:.1f} tok/s", rate);
    case ProgressUnit::kPrompts: return fmt::format("{:.2g}/s", rate);
  }
  return "";
}

}  // namespace

Progress::Progress(std::string label, ProgressUnit unit)
    : label_(std::move(label)), unit_(unit), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::Update(int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  if (first_done_ < 0) first_done_ = done;
  if (!terminal_ || total <= 0 || now - start_ < kFirstDraw || now - last_draw_ < kBetweenDraws) return;
  last_draw_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int64_t since = done - first_done_;
  const double rate = static_cast<double>(since) / seconds;
  const std::string rate_text = RateText(unit_, rate);
  const std::string left = since > 0 ? TimeText(static_cast<double>(total - done) / rate) : "?";
  const int filled = static_cast<int>(share * kBarWidth);
  std::fputs(fmt::format("\r\x1b[K{} [{:=<{}}{:<{}}] {:3.0f} %  {}  {} left", label_, "", filled, "",
                         kBarWidth - filled, share * 100, rate_text, left)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

void Progress::Clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace nunspark::cli
