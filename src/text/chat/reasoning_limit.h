// ReasoningLimit: ends a model's reasoning when its budget is spent, or where the model would end the whole output in
// it.
#ifndef NUNSPARK_TEXT_CHAT_REASONING_LIMIT_H_
#define NUNSPARK_TEXT_CHAT_REASONING_LIMIT_H_

#include <cstdint>
#include <vector>

#include "nunspark/options.h"
#include "text/chat/output_parser.h"

namespace nunspark::text {

struct ReasoningLimitOptions {
  int64_t budget = -1;                // tokens of reasoning in the whole output; negative: no bound
  std::vector<int32_t> end_text{};    // what closes it (ReasoningEndText), as tokens. REQUIRES: at least one
  std::vector<int32_t> end_tokens{};  // that would end the output
};

// One per output. What it does depends on the output's own tokens alone. Of the thread that decodes.
class ReasoningLimit final : public TokenOverride {
 public:
  // `tokenizer` must outlive it; `output` as for the output's OutputParser.
  ReasoningLimit(const Tokenizer& tokenizer, const OutputFormat& format, OutputOptions output,
                 ReasoningLimitOptions options)
      : options_(std::move(options)), decoder_(tokenizer, format), parser_(format, std::move(output)) {}

  int32_t Replace(int32_t chosen) override;
  void Advance(int32_t token) override;

 private:
  const ReasoningLimitOptions options_;
  OutputDecoder decoder_;
  OutputParser parser_;
  std::vector<OutputDelta> deltas_;
  int64_t spent_ = 0;
  size_t closing_ = 0;  // tokens of the end text that have come
  bool is_closing_ = false;
  bool given_up_ = false;  // the end text did not close it
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_REASONING_LIMIT_H_
