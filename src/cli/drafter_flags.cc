#include "cli/drafter_flags.h"

#include <limits>

#include "base/in_range.h"
#include "cli/engine_flags.h"
#include "cli/model_argument.h"

namespace nunspark::cli {

void AddDrafterFlags(CLI::App& verb, DrafterFlags& flags) {
  const char* const kGroup = "Speculative decoding (same text, fewer passes)";
  verb.add_flag("--ngram-draft", flags.ngram, "draft what followed the last tokens when they came before")
      ->group(kGroup);
  verb.add_option("--draft-model", flags.draft_model,
                  "folder of a smaller model with the same tokenizer, kept in memory; or a gemma4_assistant")
      ->group(kGroup);
  verb.add_option("--eagle-drafter", flags.eagle_drafter, "folder of an EAGLE head made for this model")->group(kGroup);
  verb.add_option("--num-draft-tokens", flags.tokens, "tokens of a draft, at most")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_flag("--no-adaptive", flags.no_adaptive,
                "always that many; else as many as pay by what drafts and passes cost, down to none")
      ->group(kGroup);
  verb.add_option("--tree", flags.tree,
                  "draft a tree instead of a chain: children per node, level by level, such as 4,2,2,1")
      ->group(kGroup);
  verb.add_option(
          "--accept-top-k", flags.accept_top_k,
          "keep drafted tokens among so many most likely ones: above 1 faster, and another text (--temp 0 only)")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_option("--ngram-max", flags.ngram_longest, "with --ngram-draft: tokens that are looked up, at most")
      ->capture_default_str()
      ->group(kGroup);
  verb.add_flag("--no-ngram-adaptive", flags.no_ngram_adaptive, "with --ngram-draft: always --num-draft-tokens")
      ->group(kGroup);
}

Result<DrafterOptions> MakeDrafterOptions(const DrafterFlags& flags) {
  const auto count = [](const char* name, int64_t value) {
    return InRange(name, value, 1, std::numeric_limits<int32_t>::max());
  };
  ASSIGN_OR_RETURN(const int32_t ngram_longest, count("--ngram-max", flags.ngram_longest));
  ASSIGN_OR_RETURN(const int32_t tokens, count("--num-draft-tokens", flags.tokens));
  ASSIGN_OR_RETURN(const int32_t accept_top_k, count("--accept-top-k", flags.accept_top_k));
  if (flags.ngram && !(flags.eagle_drafter.empty() && flags.draft_model.empty())) {
    return InvalidArgumentError("--ngram-draft cannot be used together with --draft-model or --eagle-drafter");
  }
  ASSIGN_OR_RETURN(const std::string eagle_drafter, ResolveModel(flags.eagle_drafter));
  ASSIGN_OR_RETURN(const std::string draft_model, ResolveModel(flags.draft_model));
  DrafterOptions options{.ngram = flags.ngram,
                         .ngram_longest = ngram_longest,
                         .ngram_adaptive = !flags.no_ngram_adaptive,
                         .eagle_dir = eagle_drafter,
                         .draft_model = draft_model,
                         .tokens = tokens,
                         .tree = {},
                         .adaptive = !flags.no_adaptive && !(flags.ngram && flags.no_ngram_adaptive),
                         .accept_top_k = accept_top_k};
  // As in the original, only a draft model and an assistant have a fast mode.
  if (options.ngram || !options.eagle_dir.empty()) options.accept_top_k = 1;
  if (!flags.tree.empty()) {
    ASSIGN_OR_RETURN(options.tree, ParseTokenIds(flags.tree, "--tree"));
  }
  return options;
}

}  // namespace nunspark::cli
