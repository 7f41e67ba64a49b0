#include "text/chat/reasoning_limit.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace nunspark::text {
namespace {

class ReasoningLimitTest : public ::testing::Test {
 protected:
  ReasoningLimitTest() {
    format_.think_open = "<think>";
    format_.think_close = "</think>";
  }

  std::vector<int32_t> Ids(std::string_view text) const { return tokenizer_->Encode(text, AddSpecials::kNo).value(); }

  // What comes out when the model would write `model`, token by token, and then the end token: reasoning, content.
  std::pair<std::string, std::string> Write(std::string_view model, int64_t budget, OutputStart start) const {
    const int32_t end = *tokenizer_->FindToken("<|im_end|>");
    const OutputOptions output{.tools = {}, .start = start};
    ReasoningLimit limit(*tokenizer_, format_, output,
                         {.budget = budget, .end_text = Ids(ReasoningEndText(format_)), .end_tokens = {end}});
    OutputDecoder decoder(*tokenizer_, format_);
    OutputParser parser(format_, output);
    std::vector<OutputDelta> deltas;
    const std::vector<int32_t> wanted = Ids(model);
    for (size_t next = 0, steps = 0; steps < 100; ++steps) {
      const int32_t chosen = next < wanted.size() ? wanted[next] : end;
      const int32_t token = limit.Replace(chosen);
      next += token == chosen ? 1 : 0;
      limit.Advance(token);
      if (token == end) break;
      parser.Push(decoder.Push(token), deltas);
    }
    parser.Push(decoder.Finish(), deltas);
    parser.Finish(deltas);
    EXPECT_FALSE(parser.unfinished_reasoning());
    std::pair<std::string, std::string> out;
    for (const OutputDelta& delta : deltas) {
      (delta.kind == OutputDelta::Kind::kReasoning ? out.first : out.second) += delta.text;
    }
    return out;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ =
      Tokenizer::Load(std::string(NUNSPARK_SOURCE_DIR) + "/models/demo-moe-4bit").value();
  OutputFormat format_;
};

using Out = std::pair<std::string, std::string>;

TEST_F(ReasoningLimitTest, ReasoningWithinItsBudgetIsLeftAlone) {
  EXPECT_EQ(Write("a b c\n</think>\n\nd", 100, OutputStart::kReasoning), (Out{"a b c", "d"}));
  EXPECT_EQ(Write("a b c\n</think>\n\nd", -1, OutputStart::kReasoning), (Out{"a b c", "d"}));
  EXPECT_EQ(Write("no reasoning here", 0, OutputStart::kMessage), (Out{"", "no reasoning here"}));
}

TEST_F(ReasoningLimitTest, ASpentBudgetClosesItAndTheAnswerGoesOn) {
  EXPECT_EQ(Write("a b c d", 2, OutputStart::kReasoning), (Out{"a b", "c d"}));
  EXPECT_EQ(Write("a b c d", 0, OutputStart::kReasoning), (Out{"", "a b c d"}));
}

TEST_F(ReasoningLimitTest, ReasoningThatTheModelOpensCounts) {
  EXPECT_EQ(Write("<think>a b c", 2, OutputStart::kMessage).second.find("<think>"), std::string::npos);
  EXPECT_FALSE(Write("<think>a b c", 2, OutputStart::kMessage).second.empty());
}

TEST_F(ReasoningLimitTest, AnEndInsideReasoningClosesItInstead) {
  // The end token that is chosen next is the answer's.
  EXPECT_EQ(Write("a b", -1, OutputStart::kReasoning), (Out{"a b", ""}));
}

TEST_F(ReasoningLimitTest, ATextThatClosesNothingIsPutInOnce) {
  ReasoningLimit limit(*tokenizer_, format_, {.tools = {}, .start = OutputStart::kReasoning},
                       {.budget = 1, .end_text = Ids("x"), .end_tokens = {}});
  std::string taken;
  for (int i = 0; i < 5; ++i) {
    const int32_t token = limit.Replace(Ids("a")[0]);
    limit.Advance(token);
    taken += token == Ids("x")[0] ? "x" : "a";
  }
  EXPECT_EQ(taken, "axaaa");
}

}  // namespace
}  // namespace nunspark::text
