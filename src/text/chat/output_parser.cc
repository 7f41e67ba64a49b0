#include "text/chat/output_parser.h"

#include <algorithm>

#include "text/chat/call_reader.h"

namespace nunspark::text {

struct OutputParser::Impl {
  Impl(const OutputFormat& format_in, const OutputOptions& options)
      : format(format_in),
        tools(options.tools),
        sink(format.tools, options.id_seed),
        machine(format.tools == ToolFamily::kHarmony ? MakeHarmonyMachine(sink, tools, options.start)
                                                     : MakeMarkupMachine(sink, tools, format, options.start)) {}

  const OutputFormat format;
  const ToolTable tools;
  OutputSink sink;
  std::unique_ptr<OutputMachine> machine;
  bool finished = false;
};

OutputParser::OutputParser(const OutputFormat& format, OutputOptions options)
    : impl_(std::make_unique<Impl>(format, options)) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

void OutputParser::Push(std::string_view text, std::vector<OutputDelta>& deltas) {
  impl_->sink.set_deltas(&deltas);
  // Byte by byte, so that pieces cannot matter.
  for (const char c : text) impl_->machine->Step(c);
}

void OutputParser::Finish(std::vector<OutputDelta>& deltas, OutputEnd end) {
  impl_->sink.set_deltas(&deltas);
  impl_->machine->Finish(end);
  impl_->finished = true;
}

bool OutputParser::in_reasoning() const { return impl_->machine->in_reasoning(); }
bool OutputParser::unfinished_reasoning() const { return impl_->finished && impl_->machine->unfinished_reasoning(); }
int OutputParser::call_count() const { return impl_->sink.call_count(); }

OutputDecoder::OutputDecoder(const Tokenizer& tokenizer, const OutputFormat& format)
    : tokenizer_(tokenizer), decoder_(tokenizer, SkipSpecials::kNo) {
  for (const std::string& marker : format.special_markers) {
    if (const std::optional<TokenId> id = tokenizer.FindToken(marker)) kept_.push_back(*id);
  }
}

std::string OutputDecoder::Push(TokenId id) {
  if (tokenizer_.IsSpecial(id) && std::find(kept_.begin(), kept_.end(), id) == kept_.end()) return {};
  return decoder_.Push(id);
}

std::string OutputDecoder::Finish() { return decoder_.Finish(); }

}  // namespace nunspark::text
