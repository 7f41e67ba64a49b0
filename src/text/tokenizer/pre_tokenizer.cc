#include "text/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

std::string_view TextOf(const PieceList& list, Span piece) {
  return list.text.substr(piece.begin, piece.end - piece.begin);
}

// Replaces the text by what `rewrite(piece, at_origin, out)` appends for every piece; it gives the bytes that it put
// before the piece's own first character, and that belong to it.
template <typename Rewrite>
Status RewritePieces(PieceList& list, Rewrite rewrite) {
  list.storage_spare.clear();
  list.pieces_spare.clear();
  uint32_t origin_end = 0;
  for (const Span& piece : list.pieces) {
    const uint32_t begin = static_cast<uint32_t>(list.storage_spare.size());
    const bool at_origin = piece.begin < list.origin_end;
    const size_t prefix_bytes = rewrite(TextOf(list, piece), at_origin, list.storage_spare);
    if (list.storage_spare.size() > kTextBytesMax) {
      return ResourceExhaustedError(fmt::format("the text grows beyond {} bytes while it is prepared", kTextBytesMax));
    }
    const uint32_t end = static_cast<uint32_t>(list.storage_spare.size());
    if (begin == end) continue;
    if (at_origin) origin_end = begin + static_cast<uint32_t>(prefix_bytes) + 1;
    list.pieces_spare.push_back({begin, end});
  }
  const size_t old_size = list.text.size();
  std::swap(list.storage, list.storage_spare);
  std::swap(list.pieces, list.pieces_spare);
  list.text = list.storage;
  list.origin_end = origin_end;
  return list.work.Grow(old_size, list.text.size());
}

// Applies `find(piece, matches)` to every piece and cuts there.
template <typename Find>
Status CutPieces(PieceList& list, SplitBehavior behavior, Invert invert, Find find) {
  list.pieces_spare.clear();
  for (const Span& piece : list.pieces) {
    list.matches.clear();
    RETURN_IF_ERROR(find(piece, list.matches));
    CutAtMatches(piece, list.matches, behavior, invert, list.pieces_spare);
  }
  std::swap(list.pieces, list.pieces_spare);
  return Status();
}

// One match for each character that `in_set` accepts.
template <typename InSet>
void MatchCharacters(std::string_view text, Span piece, std::vector<Span>& matches, InSet in_set) {
  uint32_t bytes = 0;
  for (uint32_t at = piece.begin; at < piece.end; at += bytes) {
    if (in_set(DecodeValidUtf8(text.data() + at, bytes))) matches.push_back({at, at + bytes});
  }
}

}  // namespace

Result<PrependScheme> PrependSchemeFromJson(const JsonSection& section) {
  if (section.Member("prepend_scheme").has_value()) {
    ASSIGN_OR_RETURN(const std::string name, section.String("prepend_scheme"));
    if (name == "always") return PrependScheme::kAlways;
    if (name == "first") return PrependScheme::kFirst;
    if (name == "never") return PrependScheme::kNever;
    return section.Malformed(fmt::format("prepend_scheme: expected always, first or never, found '{}'", name));
  }
  ASSIGN_OR_RETURN(const bool add_prefix_space, section.BoolOr("add_prefix_space", true));
  return add_prefix_space ? PrependScheme::kAlways : PrependScheme::kNever;
}

Result<PreTokenizer> PreTokenizer::FromJson(const JsonSection& section) {
  PreTokenizer pre_tokenizer;
  RETURN_IF_ERROR(pre_tokenizer.AppendSteps(section, 0));
  return pre_tokenizer;
}

PreTokenizer PreTokenizer::IsolateMatches(Pattern pattern) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.steps_.emplace_back(Split{std::move(pattern), SplitBehavior::kIsolated, Invert::kNo});
  return pre_tokenizer;
}

Status PreTokenizer::AppendSteps(const JsonSection& section, int depth) {
  if (depth > kStepDepthMax || steps_.size() > kStepsMax) return section.Malformed("too many steps");
  ASSIGN_OR_RETURN(const std::string type, section.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonSection> parts, section.Array("pretokenizers", kStepsMax));
    for (const JsonSection& part : parts) RETURN_IF_ERROR(AppendSteps(part, depth + 1));
    return Status();
  }
  if (type == "ByteLevel") return AppendByteLevel(section);
  if (type == "Metaspace") return AppendMetaspace(section);
  if (type == "Split") {
    ASSIGN_OR_RETURN(const JsonSection pattern_section, section.Required("pattern"));
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(pattern_section));
    RETURN_IF_ERROR(section.Required("behavior").status());
    ASSIGN_OR_RETURN(const SplitBehavior behavior,
                     SplitBehaviorFromJson(section, "behavior", SplitBehavior::kIsolated));
    ASSIGN_OR_RETURN(const bool invert, section.BoolOr("invert", false));
    steps_.emplace_back(Split{std::move(pattern), behavior, invert ? Invert::kYes : Invert::kNo});
    return Status();
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, section.BoolOr("individual_digits", false));
    steps_.emplace_back(
        SplitOnCharacters{CharacterSet::kDigit, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
    return Status();
  }
  if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const SplitBehavior behavior,
                     SplitBehaviorFromJson(section, "behavior", SplitBehavior::kIsolated));
    steps_.emplace_back(SplitOnCharacters{CharacterSet::kPunctuation, behavior});
    return Status();
  }
  if (type == "WhitespaceSplit") {
    steps_.emplace_back(SplitOnCharacters{CharacterSet::kWhiteSpace, SplitBehavior::kRemoved});
    return Status();
  }
  if (type == "Whitespace") {
    steps_.emplace_back(WordsAndSigns{});
    return Status();
  }
  return section.Unsupported(fmt::format("this build does not know the pre-tokenizer '{}'", type));
}

Status PreTokenizer::AppendByteLevel(const JsonSection& section) {
  ASSIGN_OR_RETURN(const bool add_prefix_space, section.BoolOr("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, section.BoolOr("use_regex", true));
  if (add_prefix_space) steps_.emplace_back(AddPrefixSpace{});
  if (use_regex) steps_.emplace_back(Split{Pattern::Scan(Gpt2Scanner()), SplitBehavior::kIsolated, Invert::kNo});
  steps_.emplace_back(MapBytes{});
  return Status();
}

Status PreTokenizer::AppendMetaspace(const JsonSection& section) {
  ASSIGN_OR_RETURN(const std::string replacement, section.Character("replacement"));
  ASSIGN_OR_RETURN(const PrependScheme scheme, PrependSchemeFromJson(section));
  ASSIGN_OR_RETURN(const bool split, section.BoolOr("split", true));
  steps_.emplace_back(Metaspace{replacement, scheme});
  if (split) {
    steps_.emplace_back(Split{Pattern::Literal(replacement), SplitBehavior::kMergedWithNext, Invert::kNo});
  }
  return Status();
}

bool PreTokenizer::EndsWithByteLevel() const {
  return !steps_.empty() && std::holds_alternative<MapBytes>(steps_.back());
}

void PreTokenizer::KeepRawBytes() {
  CHECK(EndsWithByteLevel());
  steps_.pop_back();
}

Status PreTokenizer::Run(std::string_view text, uint32_t origin_end, PieceList& list) const {
  list.text = text;
  list.origin_end = origin_end;
  list.pieces.clear();
  if (!text.empty()) list.pieces.push_back({0, static_cast<uint32_t>(text.size())});
  for (const Step& step : steps_) {
    RETURN_IF_ERROR(std::visit([&list](const auto& chosen) { return Apply(chosen, list); }, step));
  }
  return Status();
}

Status PreTokenizer::Apply(const Split& step, PieceList& list) {
  return CutPieces(list, step.behavior, step.invert, [&](Span piece, std::vector<Span>& matches) {
    return step.pattern.FindMatches(list.text, piece, list.work, matches);
  });
}

Status PreTokenizer::Apply(const AddPrefixSpace&, PieceList& list) {
  return RewritePieces(list, [](std::string_view piece, bool, std::string& out) {
    const bool prefix = piece[0] != ' ';
    if (prefix) out += ' ';
    out += piece;
    return size_t{prefix ? 1u : 0u};
  });
}

Status PreTokenizer::Apply(const MapBytes&, PieceList& list) {
  return RewritePieces(list, [](std::string_view piece, bool, std::string& out) {
    text::AppendByteLevel(piece, out);
    return size_t{0};
  });
}

Status PreTokenizer::Apply(const Metaspace& step, PieceList& list) {
  return RewritePieces(list, [&step](std::string_view piece, bool at_origin, std::string& out) {
    const bool wanted = step.scheme == PrependScheme::kAlways || (step.scheme == PrependScheme::kFirst && at_origin);
    const bool prepend = wanted && piece[0] != ' ' && !piece.starts_with(step.replacement);
    if (prepend) out += step.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
    return prepend ? step.replacement.size() : 0;
  });
}

Status PreTokenizer::Apply(const SplitOnCharacters& step, PieceList& list) {
  const UnicodeTable& table = UnicodeTable::Get();
  return CutPieces(list, step.behavior, Invert::kNo, [&](Span piece, std::vector<Span>& matches) {
    switch (step.set) {
      case CharacterSet::kDigit:
        MatchCharacters(list.text, piece, matches, [](uint32_t c) { return IsStandardNumber(c); });
        break;
      case CharacterSet::kPunctuation:
        MatchCharacters(list.text, piece, matches, [&table](uint32_t c) { return table.IsReferencePunctuation(c); });
        break;
      case CharacterSet::kWhiteSpace:
        MatchCharacters(list.text, piece, matches, [&table](uint32_t c) { return table.In(c, kWhiteSpace); });
        break;
    }
    return Status();
  });
}

Status PreTokenizer::Apply(const WordsAndSigns&, PieceList& list) {
  const UnicodeTable& table = UnicodeTable::Get();
  enum class Kind { kSpace, kWord, kSign };
  const auto kind_of = [&table](uint32_t c) {
    if (IsWordCharacter(c)) return Kind::kWord;
    return table.In(c, kWhiteSpace) ? Kind::kSpace : Kind::kSign;
  };
  return CutPieces(list, SplitBehavior::kRemoved, Invert::kYes, [&](Span piece, std::vector<Span>& matches) {
    uint32_t bytes = 0;
    Kind previous = Kind::kSpace;
    for (uint32_t at = piece.begin; at < piece.end; at += bytes) {
      const Kind kind = kind_of(DecodeValidUtf8(list.text.data() + at, bytes));
      if (kind != Kind::kSpace && kind == previous) {
        matches.back().end = at + bytes;
      } else if (kind != Kind::kSpace) {
        matches.push_back({at, at + bytes});
      }
      previous = kind;
    }
    return Status();
  });
}

}  // namespace nunspark::text
