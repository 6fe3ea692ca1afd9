#include "engine/constraints/expressions/unicode_sets.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kNumCategories = 30;  // utf8proc numbers them from 0

using CategoryTables = std::array<CodePoints, kNumCategories>;

const CategoryTables& categories() {
  static const CategoryTables tables = [] {
    CategoryTables made;
    char32_t begin = 0;
    const auto category = [](char32_t code_point) {
      return static_cast<std::size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(code_point)));
    };
    std::size_t current = category(0);
    for (char32_t each = 1; each <= 0x110000; ++each) {
      const std::size_t next = each == 0x110000 ? kNumCategories : category(each);
      if (next == current) continue;
      made[current].add(begin, each - 1);
      begin = each;
      current = next;
    }
    return made;
  }();
  return tables;
}

// A category is all those whose short name begins with its own; LC is the exception.
struct CategoryName {
  std::string_view short_name, long_name, other_name = {};
};
constexpr auto kCategoryNames = std::to_array<CategoryName>({
    {"C", "Other"},
    {"Cc", "Control", "cntrl"},
    {"Cf", "Format"},
    {"Cn", "Unassigned"},
    {"Co", "Private_Use"},
    {"Cs", "Surrogate"},
    {"L", "Letter"},
    {"LC", "Cased_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lu", "Uppercase_Letter"},
    {"M", "Mark", "Combining_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"Mn", "Nonspacing_Mark"},
    {"N", "Number"},
    {"Nd", "Decimal_Number", "digit"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"P", "Punctuation", "punct"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"S", "Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"Sm", "Math_Symbol"},
    {"So", "Other_Symbol"},
    {"Z", "Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"Zs", "Space_Separator"},
});

// In the order of utf8proc_category_t.
constexpr std::array<std::string_view, kNumCategories> kCategories = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
static_assert(UTF8PROC_CATEGORY_CN == 0 && UTF8PROC_CATEGORY_LU == 1 && UTF8PROC_CATEGORY_MN == 6 &&
              UTF8PROC_CATEGORY_ND == 9 && UTF8PROC_CATEGORY_PC == 12 && UTF8PROC_CATEGORY_PO == 18 &&
              UTF8PROC_CATEGORY_SM == 19 && UTF8PROC_CATEGORY_ZS == 23 && UTF8PROC_CATEGORY_CC == 26 &&
              UTF8PROC_CATEGORY_CO == 29);

std::optional<CodePoints> category_characters(std::string_view name) {
  const auto found = std::ranges::find_if(kCategoryNames, [&](const CategoryName& each) {
    return name == each.short_name || name == each.long_name || (!name.empty() && name == each.other_name);
  });
  if (found == kCategoryNames.end()) return std::nullopt;
  CodePoints set;
  for (std::size_t category = 0; category < kNumCategories; ++category) {
    const std::string_view each = kCategories[category];
    const bool is_member =
        found->short_name == "LC" ? each == "Lu" || each == "Ll" || each == "Lt" : each.starts_with(found->short_name);
    if (is_member) set.add(categories()[category]);
  }
  return set;
}

CodePoints set_of(std::initializer_list<std::pair<char32_t, char32_t>> ranges) {
  CodePoints set;
  for (const auto& [first, last] : ranges) set.add(first, last);
  return set;
}

}  // namespace

const CodePoints& ascii_digits() {
  static const CodePoints set = CodePoints::of('0', '9');
  return set;
}

const CodePoints& word_characters() {
  static const CodePoints set = set_of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}

const CodePoints& white_space() {
  static const CodePoints set = set_of({{0x9, 0xD},
                                        {0x20, 0x20},
                                        {0xA0, 0xA0},
                                        {0x1680, 0x1680},
                                        {0x2000, 0x200A},
                                        {0x2028, 0x2029},
                                        {0x202F, 0x202F},
                                        {0x205F, 0x205F},
                                        {0x3000, 0x3000},
                                        {0xFEFF, 0xFEFF}});
  return set;
}

const CodePoints& within_lines() {
  static const CodePoints set = set_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
  return set;
}

std::optional<CodePoints> property_characters(std::string_view property) {
  const std::size_t equals = property.find('=');
  if (equals != std::string_view::npos) {
    const std::string_view name = property.substr(0, equals);
    if (name != "General_Category" && name != "gc") return std::nullopt;
    return category_characters(property.substr(equals + 1));
  }
  if (property == "Any") return CodePoints::all();
  if (property == "ASCII") return CodePoints::of(0, 0x7F);
  if (property == "Assigned") return category_characters("Cn")->complement();
  if (property == "ASCII_Hex_Digit" || property == "AHex") return set_of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  if (property == "White_Space" || property == "space") {
    // Not quite \s: with U+0085 and without U+FEFF.
    CodePoints set = white_space().intersection(CodePoints::of(0xFEFF, 0xFEFF).complement());
    set.add(0x85, 0x85);
    return set;
  }
  return category_characters(property);
}

}  // namespace troupe::engine::constraints
