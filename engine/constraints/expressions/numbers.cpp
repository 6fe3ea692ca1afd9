#include "engine/constraints/expressions/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "config/assert.h"
#include "engine/constraints/expressions/value_text.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxDecimalDigits = 400;    // on either side of the point
constexpr std::uint32_t kMaxIntegerDigits = 300;  // of what is written without a bound: below the largest double

// --- Decimals ---

// Of two texts of digits without leading zeros.
std::strong_ordering compare_integers(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  return a <=> b;
}

void strip_leading_zeros(std::string& digits) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
}

// From digits (at least one) and the number of those behind the point.
std::optional<Decimal> decimal_from(bool negative, std::string digits, std::size_t scale) {
  while (scale > 0 && digits.back() == '0' && digits.size() > 1) {
    digits.pop_back();
    --scale;
  }
  strip_leading_zeros(digits);
  if (digits == "0") return Decimal{.digits = "0"};
  if (scale > kMaxDecimalDigits || digits.size() > scale + kMaxDecimalDigits) return std::nullopt;
  return Decimal{.negative = negative, .digits = std::move(digits), .scale = scale};
}

// From a text that JSON allows. Exponents of up to 6 digits.
std::optional<Decimal> decimal_from(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::string digits;
  std::int64_t scale = 0;
  bool is_fraction = false;
  while (!text.empty() && text.front() != 'e') {
    is_fraction = is_fraction || text.front() == '.';
    if (text.front() != '.') {
      digits += text.front();
      scale += is_fraction ? 1 : 0;
    }
    text.remove_prefix(1);
  }
  if (!text.empty()) {
    text.remove_prefix(text.starts_with("e+") ? 2 : 1);
    std::int64_t exponent = 0;
    std::from_chars(text.data(), text.data() + text.size(), exponent);
    scale -= exponent;
  }
  if (scale < 0) {
    digits.append(static_cast<std::size_t>(-scale), '0');
    scale = 0;
  }
  return decimal_from(negative, std::move(digits), static_cast<std::size_t>(scale));
}

// The digits before the point and behind it. "0" and "" for zero.
struct Magnitude {
  std::string whole, fraction;

  explicit Magnitude(const Decimal& value) {
    const std::string& digits = value.digits;
    if (digits.size() > value.scale) {
      whole = digits.substr(0, digits.size() - value.scale);
      fraction = digits.substr(digits.size() - value.scale);
    } else {
      whole = "0";
      fraction = std::string(value.scale - digits.size(), '0') + digits;
    }
  }
};

Decimal absolute(Decimal value) {
  value.negative = false;
  return value;
}

// The same number at a larger scale: an integer of its last digit.
std::string scaled(const Decimal& value, std::size_t scale) {
  std::string digits = value.digits + std::string(scale - value.scale, '0');
  strip_leading_zeros(digits);
  return digits;
}

// a mod b, of texts of digits; b above 0. By subtraction, one digit after another.
std::string remainder(std::string_view a, std::string_view b) {
  std::string rest = "0";
  for (const char digit : a) {
    rest += digit;
    strip_leading_zeros(rest);
    while (compare_integers(rest, b) >= 0) {
      int borrow = 0;
      for (std::size_t at = 0; at < rest.size(); ++at) {
        char& place = rest[rest.size() - 1 - at];
        int left = place - '0' - borrow - (at < b.size() ? b[b.size() - 1 - at] - '0' : 0);
        borrow = left < 0 ? 1 : 0;
        if (left < 0) left += 10;
        place = static_cast<char>('0' + left);
      }
      strip_leading_zeros(rest);
    }
  }
  return rest;
}

bool is_multiple(const Decimal& value, const Decimal& of) {
  const std::size_t scale = std::max(value.scale, of.scale);
  return remainder(scaled(value, scale), scaled(of, scale)) == "0";
}

// --- Texts of magnitudes: digits without a sign, with a fraction if the numbers are no integers ---

class NumberTexts {
 public:
  NumberTexts(RegexPool& pool, bool integer) : pool_(pool), integer_(integer) {}

  // Of all numbers: [0-9] digits, "0" alone before others.
  RegexId any() { return at_least({.value = {.digits = "0"}}); }
  RegexId above_zero() { return at_least({.value = {.digits = "0"}, .excluded = true}); }

  RegexId at_least(const NumberBound& bound) {
    const Magnitude low(bound.value);
    const auto length = static_cast<std::uint32_t>(low.whole.size());
    RegexId same_length = fraction_at_least(low.fraction, bound.excluded);
    for (std::uint32_t behind = 0; behind < length; ++behind) {
      const char each = low.whole[length - 1 - behind];
      same_length = pool_.either({pool_.concat(std::array{above(each), digits(behind, behind), fraction()}),
                                  pool_.concat(digit(each, each), same_length)});
    }
    if (length >= kMaxIntegerDigits) return same_length;
    const RegexId longer = pool_.concat(digit('1', '9'), digits(length, kMaxIntegerDigits - 1));
    return pool_.either({same_length, pool_.concat(longer, fraction())});
  }

  RegexId at_most(const NumberBound& bound) {
    const Magnitude high(bound.value);
    const auto length = static_cast<std::uint32_t>(high.whole.size());
    RegexId same_length = fraction_at_most(high.fraction, bound.excluded);
    for (std::uint32_t behind = 0; behind < length; ++behind) {
      const char each = high.whole[length - 1 - behind];
      const char lowest = behind + 1 == length && length > 1 ? '1' : '0';
      same_length = pool_.either({pool_.concat(std::array{below(each, lowest), digits(behind, behind), fraction()}),
                                  pool_.concat(digit(each, each), same_length)});
    }
    if (length == 1) return same_length;
    const RegexId shorter = pool_.either({digit('0', '0'), pool_.concat(digit('1', '9'), digits(0, length - 2))});
    return pool_.either({same_length, pool_.concat(shorter, fraction())});
  }

  // Fractions of at most 0.`high`, that of none being 0.
  RegexId fraction_at_most(std::string_view high, bool excluded) {
    if (high.empty() && excluded) return kNoText;
    if (integer_) return kEmptyText;
    // Digits from the last of `high` to the first; ending before it is less, as its last digit is not 0.
    RegexId rest = excluded ? kNoText : zeros(high.empty() ? 1 : 0);
    for (std::size_t at = high.size(); at-- > 0;) {
      rest = pool_.either(
          {pool_.concat(below(high[at], '0'), digits(0, kUnbounded)), pool_.concat(digit(high[at], high[at]), rest)});
      if (at > 0) rest = pool_.optional(rest);
    }
    return pool_.optional(pool_.concat(point(), rest));
  }

  RegexId digits(std::uint32_t min, std::uint32_t max) { return pool_.repeat(digit('0', '9'), min, max); }

 private:
  RegexId digit(char first, char last) {
    if (first > last) return kNoText;
    return pool_.bytes(ByteSet::range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last)));
  }
  RegexId above(char low) { return digit(static_cast<char>(low + 1), '9'); }
  RegexId below(char high, char lowest) { return digit(lowest, static_cast<char>(high - 1)); }
  RegexId point() { return pool_.literal("."); }
  RegexId zeros(std::uint32_t min) { return pool_.repeat(digit('0', '0'), min, kUnbounded); }

  RegexId fraction() { return integer_ ? kEmptyText : pool_.optional(pool_.concat(point(), digits(1, kUnbounded))); }
  // Fractions of at least 0.`low`, that of none being 0.
  RegexId fraction_at_least(std::string_view low, bool excluded) {
    if (low.empty() && !excluded) return fraction();
    if (integer_) return kNoText;
    const RegexId any = digits(0, kUnbounded);
    RegexId rest = excluded ? pool_.concat(std::array{any, above('0'), any}) : any;
    for (std::size_t at = low.size(); at-- > 0;)
      rest = pool_.either({pool_.concat(above(low[at]), any), pool_.concat(digit(low[at], low[at]), rest)});
    return pool_.concat(point(), rest);
  }

  RegexPool& pool_;
  const bool integer_;
};

// --- Multiples ---

// Numbers with a sign that are multiples of `divisor` / 10^scale: a table of remainders. Up to `scale` digits behind
// the point count, further ones must be 0; no fraction if the numbers are integers. Neither "-0" nor leading zeros, and
// no 0 at all unless `has_zero`.
struct MultiplesTable {
  std::uint32_t divisor = 1, scale = 0;
  bool integer = false, has_zero = true;

  std::size_t num_states() const { return integer ? fraction(0, 0) : zero_fraction(scale, true) + 1; }

  DigitTable made() const {
    std::array<std::uint32_t, 256> none;
    none.fill(DigitTable::kNoState);
    DigitTable table{.next = std::vector(num_states(), none), .accepts = std::vector<bool>(num_states())};
    table.next[kBegin]['-'] = kMinus;
    table.next[kBegin]['0'] = kZero;
    table.accepts[kZero] = has_zero;
    if (!integer) table.next[kMinus]['0'] = kMinusZero;
    for (std::uint32_t digit = 1; digit < 10; ++digit)
      table.next[kBegin]['0' + digit] = table.next[kMinus]['0' + digit] = whole(digit % divisor);
    for (std::uint32_t rest = 0; rest < divisor; ++rest) {
      table.accepts[whole(rest)] = ends(rest, 0);
      for (std::uint32_t digit = 0; digit < 10; ++digit)
        table.next[whole(rest)]['0' + digit] = whole((rest * 10 + digit) % divisor);
    }
    if (!integer) add_fractions(table);
    return table;
  }

 private:
  static constexpr std::uint32_t kBegin = 0, kMinus = 1, kZero = 2, kMinusZero = 3, kZerosBehind = 4, kFirst = 5;

  // The state after digits of which a remainder is left: before the point; and with `count` digits behind it.
  std::uint32_t whole(std::uint32_t rest) const { return kFirst + rest; }
  std::uint32_t fraction(std::uint32_t count, std::uint32_t rest) const {
    return kFirst + (count + 1) * divisor + rest;
  }
  // After zeros alone, `count` of them behind the point.
  std::uint32_t zero_fraction(std::uint32_t count, bool negative) const {
    return fraction(scale + 1, 0) + 2 * count + (negative ? 1 : 0);
  }
  // Whether a number may end with this remainder and so many digits behind the point.
  bool ends(std::uint32_t rest, std::uint32_t count) const {
    for (; count < scale; ++count) rest = rest * 10 % divisor;
    return rest == 0;
  }

  void add_fractions(DigitTable& table) const {
    table.accepts[kZerosBehind] = true;
    table.next[kZerosBehind]['0'] = kZerosBehind;
    for (std::uint32_t rest = 0; rest < divisor; ++rest) {
      table.next[whole(rest)]['.'] = fraction(0, rest);
      for (std::uint32_t count = 0; count <= scale; ++count) {
        auto& next = table.next[fraction(count, rest)];
        table.accepts[fraction(count, rest)] = count > 0 && ends(rest, count);
        for (std::uint32_t digit = 0; digit < 10 && count < scale; ++digit)
          next['0' + digit] = fraction(count + 1, (rest * 10 + digit) % divisor);
        if (count == scale && rest == 0) next['0'] = kZerosBehind;
      }
    }
    for (const bool negative : {false, true}) {
      table.next[negative ? kMinusZero : kZero]['.'] = zero_fraction(0, negative);
      for (std::uint32_t count = 0; count <= scale; ++count) {
        auto& next = table.next[zero_fraction(count, negative)];
        table.accepts[zero_fraction(count, negative)] = count > 0 && has_zero && !negative;
        next['0'] = zero_fraction(std::min(count + 1, scale), negative);
        for (std::uint32_t digit = 1; digit < 10 && count < scale; ++digit)
          next['0' + digit] = fraction(count + 1, digit % divisor);
      }
    }
  }
};

// The powers of primes whose product is `digits`, ascending primes; the last may be what is left: above any table.
std::vector<std::uint64_t> prime_powers(std::string digits) {
  std::vector<std::uint64_t> powers;
  for (std::uint64_t prime = 2; prime <= kMaxMultipleStates && digits != "1"; ++prime) {
    std::uint64_t power = 1;
    for (;;) {
      std::string quotient = digits;
      std::uint64_t rest = 0;
      for (char& each : quotient) {
        rest = rest * 10 + static_cast<std::uint64_t>(each - '0');
        each = static_cast<char>('0' + rest / prime);
        rest %= prime;
      }
      if (rest != 0) break;
      strip_leading_zeros(quotient);
      digits = std::move(quotient);
      power = std::min<std::uint64_t>(power * prime, kMaxMultipleStates + 1);
    }
    if (power > 1) powers.push_back(power);
  }
  if (digits != "1") powers.push_back(kMaxMultipleStates + 1);
  return powers;
}

// Makes conditions on numbers that are multiples.
class MultipleTexts {
 public:
  MultipleTexts(RegexPool& pool, bool integer) : pool_(pool), integer_(integer) {}

  Result<RegexId> of(const Decimal& multiple) {
    TROUPE_ASSERT(!multiple.negative && multiple.digits != "0");
    MultiplesTable table{.scale = static_cast<std::uint32_t>(multiple.scale), .integer = integer_};
    if (!multiple.is_integer()) return tables(multiple.digits, multiple, table);
    // Tens are zeros at the end, and behind the point there is nothing else.
    table.integer = true;
    std::string digits = multiple.digits;
    std::uint32_t num_zeros = 0;
    for (; digits.back() == '0'; ++num_zeros) digits.pop_back();
    table.has_zero = num_zeros == 0;
    Result<RegexId> whole = tables(digits, multiple, table);
    if (!whole) return whole;
    const RegexId zero = pool_.literal("0");
    if (num_zeros > 0) whole = pool_.either({zero, pool_.concat(*whole, pool_.repeat(zero, num_zeros, num_zeros))});
    if (integer_) return whole;
    return pool_.concat(*whole, pool_.optional(pool_.concat(pool_.literal("."), pool_.repeat(zero, 1, kUnbounded))));
  }

 private:
  // One table, or where that is too large one for each power of a prime in `digits`.
  Result<RegexId> tables(const std::string& digits, const Decimal& multiple, MultiplesTable table) {
    std::vector<std::uint64_t> divisors = prime_powers(digits);
    std::uint64_t product = 1;
    for (const std::uint64_t each : divisors) product = std::min<std::uint64_t>(product * each, kMaxMultipleStates + 1);
    table.divisor = static_cast<std::uint32_t>(product);
    if (table.num_states() <= states_left_) divisors = {product};
    std::vector<RegexId> conditions;
    for (const std::uint64_t divisor : divisors) {
      table.divisor = static_cast<std::uint32_t>(divisor);
      if (table.num_states() > states_left_)
        return Error{ErrorCode::unsupported, fmt::format("multiples of {}: their automata have more than {} states",
                                                         multiple.text(), kMaxMultipleStates)};
      states_left_ -= table.num_states();
      pool_.check_room(table.num_states() * DigitTable::kBytesPerState);
      conditions.push_back(pool_.table(table.made()));
    }
    return pool_.both(std::move(conditions));
  }

  RegexPool& pool_;
  const bool integer_;
  std::size_t states_left_ = kMaxMultipleStates;
};

// --- Numbers ---

// Numbers with exponents that a double holds.
RegexId with_exponent(RegexPool& pool, NumberTexts& texts) {
  const auto literal = [&](std::string_view text) { return pool.literal(text); };
  const RegexId digits = texts.digits(1, kUnbounded);
  const RegexId fraction = pool.optional(pool.concat(literal("."), digits));
  const RegexId whole =
      pool.either({literal("0"), pool.concat(pool.bytes(ByteSet::range('1', '9')), texts.digits(0, 199))});
  const RegexId one = texts.digits(1, 1);
  const RegexId e = pool.either({literal("e"), literal("E")});
  const RegexId plus =
      pool.concat(std::array{e, pool.optional(literal("+")), pool.repeat(literal("0"), 0, kUnbounded)});
  const RegexId below_308 =
      pool.either({texts.digits(1, 2), pool.concat(pool.bytes(ByteSet::range('1', '2')), texts.digits(2, 2)),
                   pool.concat(literal("30"), pool.bytes(ByteSet::range('0', '7')))});
  // The largest double is 1.7976931348623157e308.
  const RegexId up_to_largest = pool.concat(literal("1"), texts.fraction_at_most("7976931348623157", false));
  return pool.either({pool.concat(std::array{whole, fraction, e, literal("-"), digits}),
                      pool.concat(std::array{whole, fraction, plus, texts.digits(1, 2)}),
                      pool.concat(std::array{one, fraction, plus, below_308}),
                      pool.concat(std::array{up_to_largest, plus, literal("308")})});
}

}  // namespace

std::string Decimal::text() const {
  const Magnitude magnitude(*this);
  std::string text = negative ? "-" : "";
  text += magnitude.whole;
  if (!magnitude.fraction.empty()) text += '.' + magnitude.fraction;
  return text;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (negative != other.negative) return other.negative <=> negative;
  const std::size_t common = std::max(scale, other.scale);
  const auto order = compare_integers(scaled(*this, common), scaled(other, common));
  return negative ? 0 <=> order : order;
}

std::optional<Decimal> decimal_of(const chat::Json& number) {
  if (const auto* const integer = std::get_if<std::int64_t>(&number.value))
    return decimal_from(std::to_string(*integer));
  if (const auto* const large = std::get_if<chat::LargeInteger>(&number.value)) return decimal_from(large->digits);
  const auto* const real = std::get_if<double>(&number.value);
  if (real == nullptr || !std::isfinite(*real)) return std::nullopt;
  return decimal_from(value_text(number));
}

Result<RegexId> number_texts(RegexPool& pool, const NumberRange& range) {
  NumberTexts texts(pool, range.integer);
  const RegexId minus = pool.literal("-");
  if (!range.low && !range.high && range.multiples_of.empty()) {
    const RegexId magnitude = texts.any();
    return pool.concat(pool.optional(minus),
                       range.integer ? magnitude : pool.either({magnitude, with_exponent(pool, texts)}));
  }
  // From 0 upwards, and below.
  std::vector<RegexId> branches;
  if (!range.high || !range.high->value.negative) {
    const bool has_low = range.low && !range.low->value.negative;
    const RegexId low = has_low ? texts.at_least(*range.low) : texts.any();
    branches.push_back(range.high ? pool.both({low, texts.at_most(*range.high)}) : low);
  }
  if (!range.low || range.low->value.negative) {
    const bool has_high = range.high && range.high->value.negative;
    const RegexId high =
        has_high ? texts.at_least({absolute(range.high->value), range.high->excluded}) : texts.above_zero();
    const RegexId magnitude =
        range.low ? pool.both({high, texts.at_most({absolute(range.low->value), range.low->excluded})}) : high;
    branches.push_back(pool.concat(minus, magnitude));
  }
  std::vector<RegexId> conditions{pool.either(std::move(branches))};
  MultipleTexts multiples(pool, range.integer);
  for (const Decimal& each : range.multiples_of) {
    const Result<RegexId> condition = multiples.of(each);
    if (!condition) return condition.error();
    conditions.push_back(*condition);
  }
  return pool.both(std::move(conditions));
}

bool contains(const NumberRange& range, const Decimal& value) {
  if (range.integer && !value.is_integer()) return false;
  if (range.low && (range.low->excluded ? value <= range.low->value : value < range.low->value)) return false;
  if (range.high && (range.high->excluded ? value >= range.high->value : value > range.high->value)) return false;
  return std::ranges::all_of(range.multiples_of, [&](const Decimal& each) { return is_multiple(value, each); });
}

}  // namespace troupe::engine::constraints
