// Follows JSON text a byte at a time: is it still JSON, and when is the value whole.
#ifndef NUNSPARK_TEXT_CHAT_JSON_SCANNER_H_
#define NUNSPARK_TEXT_CHAT_JSON_SCANNER_H_

#include <string>
#include <string_view>

namespace nunspark::text {

// For one object or array. Nesting beyond 200 levels and numbers beyond 400 digits count as no JSON.
class JsonScanner {
 public:
  enum class Result { kMore, kDone, kBad };
  enum class Expect { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd };

  // No Feed may follow kDone or kBad.
  Result Feed(char c);

  bool in_string() const { return in_string_; }
  bool in_key() const { return in_string_ && is_key_; }
  bool in_atom() const { return !atom_.empty(); }  // a number, true, false or null
  int depth() const { return static_cast<int>(open_.size()); }
  Expect expect() const { return expect_; }

 private:
  Result FeedString(char c);
  Result FeedOutside(char c);
  Result Close(char opening);

  Expect expect_ = Expect::kValue;
  std::string open_;  // the brackets that are open
  std::string atom_;
  bool in_string_ = false, is_key_ = false, escaped_ = false;
  int hex_digits_ = 0;  // still to come of \uXXXX
};

// A number as JSON writes it, true, false or null.
bool IsJsonAtom(std::string_view text);

// `c` as it may stand inside a JSON string: raw control characters become escapes, everything else stays. Models write
// line breaks into strings now and then, which no JSON reader takes.
void AppendRepaired(char c, bool in_string, std::string& out);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_CHAT_JSON_SCANNER_H_
