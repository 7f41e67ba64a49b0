// Finding one text in another, in time that is linear in both, whatever they are: templates choose them.
#ifndef NUNSPARK_TEXT_CHAT_TEXT_SEARCH_H_
#define NUNSPARK_TEXT_CHAT_TEXT_SEARCH_H_

#include <cstddef>
#include <string_view>

namespace nunspark::text::jinja {

// As std::string_view::find and rfind, which take the product of both lengths for some texts.
size_t FindFirst(std::string_view text, std::string_view wanted, size_t begin = 0);
size_t FindLast(std::string_view text, std::string_view wanted);

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_TEXT_SEARCH_H_
