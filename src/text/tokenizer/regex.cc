#include "text/tokenizer/regex.h"

#include <algorithm>
#include <ctime>
#include <mutex>

#include <fmt/format.h>
#include <oniguruma.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

// Longer patterns are refused: the longest real one has some 400 bytes.
constexpr size_t kPatternBytesMax = 64 * 1024;
constexpr size_t kRewrittenBytesMax = 1024 * 1024;

const OnigUChar* Bytes(const char* data) { return reinterpret_cast<const OnigUChar*>(data); }

std::string ErrorText(int code, OnigErrorInfo* info) {
  OnigUChar buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int bytes = info != nullptr ? onig_error_code_to_str(buffer, code, info) : onig_error_code_to_str(buffer, code);
  return std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(std::max(bytes, 0)));
}

using Ranges = std::vector<CodePointRange>;

Ranges Union(Ranges a, std::span<const CodePointRange> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Ranges WordRanges() {
  const ClassSet classes = kLetters | kMarks | SetOf(CharClass::kNd, CharClass::kNl, CharClass::kPc);
  return Union(RangesOf(classes), OtherAlphabetic());
}

// Outside of brackets the library takes its one-byte table for Latin-1, where the superscripts and fractions are word
// characters.
Ranges WordRangesOutsideBrackets() {
  static constexpr CodePointRange kLatin1Extra[] = {{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}};
  return Union(WordRanges(), kLatin1Extra);
}

Ranges AlphabeticRanges() {
  return Union(Union(RangesOf(kLetters | SetOf(CharClass::kNl)), AlphabeticMarks()), OtherAlphabetic());
}

struct NamedSet {
  std::string_view name;  // as NormalName gives it
  ClassSet set;
};

constexpr NamedSet kNamedSets[] = {
    {"l", kLetters},
    {"letter", kLetters},
    {"lu", SetOf(CharClass::kLu)},
    {"uppercaseletter", SetOf(CharClass::kLu)},
    {"ll", SetOf(CharClass::kLl)},
    {"lowercaseletter", SetOf(CharClass::kLl)},
    {"lt", SetOf(CharClass::kLt)},
    {"titlecaseletter", SetOf(CharClass::kLt)},
    {"lc", SetOf(CharClass::kLu, CharClass::kLl, CharClass::kLt)},
    {"casedletter", SetOf(CharClass::kLu, CharClass::kLl, CharClass::kLt)},
    {"lm", SetOf(CharClass::kLm)},
    {"modifierletter", SetOf(CharClass::kLm)},
    {"lo", SetOf(CharClass::kLo)},
    {"otherletter", SetOf(CharClass::kLo)},
    {"m", kMarks},
    {"mark", kMarks},
    {"combiningmark", kMarks},
    {"mn", SetOf(CharClass::kMn)},
    {"nonspacingmark", SetOf(CharClass::kMn)},
    {"mc", SetOf(CharClass::kMc)},
    {"spacingmark", SetOf(CharClass::kMc)},
    {"me", SetOf(CharClass::kMe)},
    {"enclosingmark", SetOf(CharClass::kMe)},
    {"n", kNumbers},
    {"number", kNumbers},
    {"nd", SetOf(CharClass::kNd)},
    {"decimalnumber", SetOf(CharClass::kNd)},
    {"digit", SetOf(CharClass::kNd)},
    {"nl", SetOf(CharClass::kNl)},
    {"letternumber", SetOf(CharClass::kNl)},
    {"no", SetOf(CharClass::kNo)},
    {"othernumber", SetOf(CharClass::kNo)},
    {"p", kPunctuation},
    {"punctuation", kPunctuation},
    {"pc", SetOf(CharClass::kPc)},
    {"connectorpunctuation", SetOf(CharClass::kPc)},
    {"pd", SetOf(CharClass::kPd)},
    {"dashpunctuation", SetOf(CharClass::kPd)},
    {"ps", SetOf(CharClass::kPs)},
    {"openpunctuation", SetOf(CharClass::kPs)},
    {"pe", SetOf(CharClass::kPe)},
    {"closepunctuation", SetOf(CharClass::kPe)},
    {"pi", SetOf(CharClass::kPi)},
    {"initialpunctuation", SetOf(CharClass::kPi)},
    {"pf", SetOf(CharClass::kPf)},
    {"finalpunctuation", SetOf(CharClass::kPf)},
    {"po", SetOf(CharClass::kPo)},
    {"otherpunctuation", SetOf(CharClass::kPo)},
    {"s", kSymbols},
    {"symbol", kSymbols},
    {"sm", SetOf(CharClass::kSm)},
    {"mathsymbol", SetOf(CharClass::kSm)},
    {"sc", SetOf(CharClass::kSc)},
    {"currencysymbol", SetOf(CharClass::kSc)},
    {"sk", SetOf(CharClass::kSk)},
    {"modifiersymbol", SetOf(CharClass::kSk)},
    {"so", SetOf(CharClass::kSo)},
    {"othersymbol", SetOf(CharClass::kSo)},
    {"z", kSeparators},
    {"separator", kSeparators},
    {"zs", SetOf(CharClass::kZs)},
    {"spaceseparator", SetOf(CharClass::kZs)},
    {"zl", SetOf(CharClass::kZl)},
    {"lineseparator", SetOf(CharClass::kZl)},
    {"zp", SetOf(CharClass::kZp)},
    {"paragraphseparator", SetOf(CharClass::kZp)},
    {"cc", kControls},
    {"control", kControls},
    {"cntrl", kControls},
    {"cf", SetOf(CharClass::kCf)},
    {"format", SetOf(CharClass::kCf)},
    {"space", kWhiteSpace},
    {"whitespace", kWhiteSpace},
};

// Property names compare without case, spaces, hyphens and underscores.
std::string NormalName(std::string_view name) {
  std::string normal;
  for (const char c : AsciiLower(name)) {
    if (c != ' ' && c != '-' && c != '_') normal += c;
  }
  return normal;
}

// The code points of a property; empty for those that are left to the library (its own, older table).
Ranges PropertyRanges(std::string_view name) {
  const std::string normal = NormalName(name);
  for (const NamedSet& named : kNamedSets) {
    if (named.name == normal) return RangesOf(named.set);
  }
  if (normal == "alphabetic" || normal == "alpha") return AlphabeticRanges();
  if (normal == "alnum") return Union(AlphabeticRanges(), RangesOf(SetOf(CharClass::kNd)));
  if (normal == "word") return WordRanges();
  if (normal == "han") return Ranges(HanScript().begin(), HanScript().end());
  return {};
}

enum class Negated { kNo, kYes };

// The other case of a letter whose pair came with Unicode 16, which the library's folding does not know; 0: none.
uint32_t NewerOtherCase(uint32_t c) {
  static constexpr uint32_t kPairs[][2] = {
      {0x19B, 0xA7DC}, {0x264, 0xA7CB}, {0xA7CC, 0xA7CD}, {0xA7DA, 0xA7DB}, {0x1C89, 0x1C8A}};
  for (const auto& pair : kPairs) {
    if (c == pair[0] || c == pair[1]) return c == pair[0] ? pair[1] : pair[0];
  }
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;  // Garay
  return c >= 0x10D70 && c <= 0x10D85 ? c - 0x20 : 0;
}

bool Contains(const Ranges& ranges, uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const CodePointRange& range) { return c >= range.first && c <= range.last; });
}

// Of the newer letters those whose other case the ranges have and whose own they have not.
Ranges MissingCases(const Ranges& ranges) {
  Ranges missing;
  const auto look_at = [&](uint32_t c) {
    if (!Contains(ranges, c) && Contains(ranges, NewerOtherCase(c))) missing.push_back({c, c});
  };
  for (const uint32_t c : {0x19B, 0x264, 0x1C89, 0x1C8A, 0xA7CB, 0xA7CC, 0xA7CD, 0xA7DA, 0xA7DB, 0xA7DC}) look_at(c);
  for (uint32_t c = 0x10D50; c <= 0x10D65; ++c) {
    look_at(c);
    look_at(c + 0x20);
  }
  return missing;
}

// One pass over a pattern.
class Rewriter {
 public:
  Rewriter(std::string_view pattern, std::string_view where)
      : pattern_(pattern), where_(where), folds_case_(FoldsCase(pattern)) {}

  Result<std::string> Run() {
    while (at_ < pattern_.size()) {
      if (out_.size() > kRewrittenBytesMax) return Malformed("too many character classes");
      const char c = pattern_[at_];
      if (c == '\\') {
        RETURN_IF_ERROR(Escape());
      } else if (c == '[') {
        OpenBracket();
      } else if (c == ']' && depth_ > 0) {
        --depth_;
        Copy(1);
      } else if (depth_ == 0 && folds_case_ && NewerLetter()) {
        continue;
      } else if (depth_ == 0 && pattern_.substr(at_, 3) == "(?#") {
        const size_t end = pattern_.find(')', at_);
        at_ = end == std::string_view::npos ? pattern_.size() : end + 1;
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  static bool FoldsCase(std::string_view pattern) {
    for (size_t at = pattern.find("(?"); at != std::string_view::npos; at = pattern.find("(?", at + 1)) {
      for (size_t i = at + 2;
           i < pattern.size() && std::string_view("imxWDSPy{g}-").find(pattern[i]) != std::string_view::npos; ++i) {
        if (pattern[i] == 'i') return true;
      }
    }
    return false;
  }

  Status Malformed(std::string_view reason) const {
    return DataLossError(fmt::format("{}: not a valid regular expression: {}", where_, reason));
  }

  void Copy(size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  // A letter of the pattern whose other case the library does not know: both in a bracket.
  bool NewerLetter() {
    if (static_cast<uint8_t>(pattern_[at_]) < 0x80) return false;
    const Utf8Char c = DecodeUtf8(pattern_, at_);
    const uint32_t other = NewerOtherCase(c.code_point);
    if (other == 0) return false;
    out_ += Bracket({{c.code_point, c.code_point}, {other, other}}, Negated::kNo);
    at_ += c.bytes;
    return true;
  }

  void OpenBracket() {
    if (depth_ > 0 && pattern_.substr(at_, 2) == "[:" && PosixBracket()) return;
    ++depth_;
    Copy(1);
    if (at_ < pattern_.size() && pattern_[at_] == '^') Copy(1);
    // A bracket directly after the opening one is literal.
    if (at_ < pattern_.size() && pattern_[at_] == ']') {
      out_ += "\\]";
      ++at_;
    }
  }

  bool PosixBracket() {
    const size_t end = pattern_.find(":]", at_);
    if (end == std::string_view::npos) return false;
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    Negated negated = Negated::kNo;
    if (!name.empty() && name[0] == '^') {
      negated = Negated::kYes;
      name.remove_prefix(1);
    }
    if (name.size() > 6 || !std::all_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; }))
      return false;
    const Ranges ranges = PropertyRanges(name);
    const size_t next = end + 2;
    if (ranges.empty()) {
      Copy(next - at_);  // left to the library
    } else {
      Emit(ranges, negated);
      at_ = next;
    }
    return true;
  }

  Status Escape() {
    if (at_ + 1 >= pattern_.size()) return Malformed("it ends in a backslash");
    switch (pattern_[at_ + 1]) {
      case 'w': Class(depth_ == 0 ? WordRangesOutsideBrackets() : WordRanges(), Negated::kNo); break;
      case 'W': Class(depth_ == 0 ? WordRangesOutsideBrackets() : WordRanges(), Negated::kYes); break;
      case 's': Class(RangesOf(kWhiteSpace), Negated::kNo); break;
      case 'S': Class(RangesOf(kWhiteSpace), Negated::kYes); break;
      case 'd': Class(RangesOf(SetOf(CharClass::kNd)), Negated::kNo); break;
      case 'D': Class(RangesOf(SetOf(CharClass::kNd)), Negated::kYes); break;
      case 'p': return Property(Negated::kNo);
      case 'P': return Property(Negated::kYes);
      case 'b': WordBoundary(Negated::kNo); break;
      case 'B': WordBoundary(Negated::kYes); break;
      default: Copy(2); break;
    }
    return Status();
  }

  void Class(const Ranges& ranges, Negated negated) {
    Emit(ranges, negated);
    at_ += 2;
  }

  Status Property(Negated negated) {
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{') {
      Copy(2);
      return Status();
    }
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return Malformed("a property without closing brace");
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (!name.empty() && name[0] == '^') {
      negated = negated == Negated::kYes ? Negated::kNo : Negated::kYes;
      name.remove_prefix(1);
    }
    const bool word_outside = depth_ == 0 && NormalName(name) == "word";
    const Ranges ranges = word_outside ? WordRangesOutsideBrackets() : PropertyRanges(name);
    if (ranges.empty()) {
      Copy(end + 1 - at_);
    } else {
      Emit(ranges, negated);
      at_ = end + 1;
    }
    return Status();
  }

  void WordBoundary(Negated negated) {
    if (depth_ > 0) {  // a backspace
      Copy(2);
      return;
    }
    const std::string word = Bracket(WordRangesOutsideBrackets(), Negated::kNo);
    out_ += negated == Negated::kNo ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                                    : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
    at_ += 2;
  }

  // Brackets fold case where the property itself does not, hence the group.
  void Emit(const Ranges& ranges, Negated negated) {
    const std::string bracket = Bracket(ranges, negated);
    out_ += depth_ == 0 && folds_case_ ? fmt::format("(?-i:{})", bracket) : bracket;
    if (depth_ == 0 || !folds_case_) return;
    // Cases that the library would not fold, side by side with the class.
    const Ranges missing = negated == Negated::kNo ? MissingCases(ranges) : MissingCasesOfComplement(ranges);
    if (!missing.empty()) out_ += Bracket(missing, Negated::kNo);
  }

  static Ranges MissingCasesOfComplement(const Ranges& ranges) {
    Ranges missing;
    for (const CodePointRange& pair : MissingCases(ranges)) {
      const uint32_t other = NewerOtherCase(pair.first);
      missing.push_back({other, other});
    }
    return missing;
  }

  static std::string Bracket(const Ranges& ranges, Negated negated) {
    std::string text = negated == Negated::kYes ? "[^" : "[";
    for (const CodePointRange& range : ranges) text += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", range.first, range.last);
    return text + "]";
  }

  std::string_view pattern_;
  std::string_view where_;
  const bool folds_case_;
  size_t at_ = 0;
  int depth_ = 0;  // of brackets
  std::string out_;
};

// Steps of backtracking that a search may take freely. One that needs more starts again with a multiple of it, which
// counts as work: the library does not tell how many steps it took.
constexpr unsigned long kFreeBacktracking = 256;
constexpr unsigned long kBacktrackingFactor = 8;
constexpr uint32_t kSearchesPerCheck = 32;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct FreeMatchParam {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

struct FreeRegion {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

}  // namespace

struct Regex::Compiled {
  regex_t* regex = nullptr;
  std::string where;
  ~Compiled() {
    if (regex != nullptr) onig_free(regex);
  }
};

Regex::Regex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<std::string> RewriteClasses(std::string_view pattern, std::string_view where) {
  return Rewriter(pattern, where).Run();
}

Result<Regex> Regex::Compile(std::string_view pattern, std::string_view where) {
  if (pattern.size() > kPatternBytesMax) {
    return DataLossError(fmt::format("{}: expected a regular expression of at most {} bytes, found {}", where,
                                     kPatternBytesMax, pattern.size()));
  }
  static std::once_flag initialised;
  std::call_once(initialised, [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
    onig_set_warn_func(onig_null_warn);
    onig_set_verb_warn_func(onig_null_warn);
  });
  ASSIGN_OR_RETURN(const std::string rewritten, RewriteClasses(pattern, where));
  auto compiled = std::make_unique<Compiled>();
  compiled->where = std::string(where);
  OnigErrorInfo info;
  // onig_new touches global tables.
  static std::mutex compile_mutex;
  const std::lock_guard<std::mutex> lock(compile_mutex);
  const int code = onig_new(&compiled->regex, Bytes(rewritten.data()), Bytes(rewritten.data() + rewritten.size()),
                            ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_ONIGURUMA, &info);
  if (code != ONIG_NORMAL) {
    compiled->regex = nullptr;
    return DataLossError(fmt::format("{}: not a valid regular expression: {}", where, ErrorText(code, &info)));
  }
  return Regex(std::move(compiled));
}

Status Regex::FindMatches(std::string_view text, Span piece, WorkLimit& work, std::vector<Span>& matches) const {
  const OnigUChar* const begin = Bytes(text.data()) + piece.begin;
  const OnigUChar* const end = Bytes(text.data()) + piece.end;
  const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
  const std::unique_ptr<OnigMatchParam, FreeMatchParam> param(onig_new_match_param());
  onig_initialize_match_param(param.get());
  const auto search = [&](const OnigUChar* from, unsigned long backtracking_max) {
    onig_set_retry_limit_in_search_of_match_param(param.get(), backtracking_max);
    onig_set_retry_limit_in_match_of_match_param(param.get(), backtracking_max);
    return onig_search_with_param(compiled_->regex, begin, end, from, end, region.get(), ONIG_OPTION_NONE, param.get());
  };
  const OnigUChar* from = begin;
  const OnigUChar* last_match_end = nullptr;
  double checked = 0;
  for (uint32_t searches = 1; from <= end; ++searches) {
    // A search may look at all of the rest before it finds its match here, without any backtracking.
    if (searches % kSearchesPerCheck == 0) {
      const double now = ThreadSeconds();
      if (checked != 0) RETURN_IF_ERROR(work.SpendSeconds(now - checked));
      checked = now;
    }
    unsigned long backtracking = kFreeBacktracking;
    int found = search(from, backtracking);
    while (found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER || found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER) {
      // A step of nested repeats may be a thousand times dearer than another.
      const double before = ThreadSeconds();
      backtracking *= kBacktrackingFactor;
      if (!work.Spend(backtracking).ok()) break;
      found = search(from, backtracking);
      RETURN_IF_ERROR(work.SpendSeconds(ThreadSeconds() - before));
    }
    if (found == ONIG_MISMATCH) break;
    if (found < 0) {
      return ResourceExhaustedError(fmt::format("{}: the regular expression failed on the text: {}", compiled_->where,
                                                ErrorText(found, nullptr)));
    }
    const OnigUChar* const match_begin = begin + region->beg[0];
    const OnigUChar* const match_end = begin + region->end[0];
    if (match_begin == match_end && match_end == last_match_end) {
      if (match_end == end) break;
      from = match_end + ValidUtf8Length(static_cast<char>(*match_end));
      continue;
    }
    matches.push_back({piece.begin + static_cast<uint32_t>(match_begin - begin),
                       piece.begin + static_cast<uint32_t>(match_end - begin)});
    from = match_end;
    last_match_end = match_end;
  }
  return Status();
}

}  // namespace nunspark::text
