// StopStrings: ends a text where one of some strings appears. The text before the match is delivered, the match is not,
// and what could still become one is held back.
#ifndef NUNSPARK_TEXT_STOP_STRINGS_H_
#define NUNSPARK_TEXT_STOP_STRINGS_H_

#include <string>
#include <string_view>
#include <vector>

namespace nunspark::text {

class StopStrings {
 public:
  // Empty strings are dropped.
  explicit StopStrings(std::vector<std::string> stops);

  // Text that is certain now. Nothing comes after a match.
  std::string Push(std::string_view text);
  // What was held back, at the end of the text.
  std::string Finish();

  bool matched() const { return matched_ >= 0; }
  // The string that ended the text. REQUIRES: matched().
  const std::string& match() const { return stops_[static_cast<size_t>(matched_)]; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  int matched_ = -1;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_STOP_STRINGS_H_
