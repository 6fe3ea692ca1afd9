// Whether this program is built with a sanitizer: everything is then 5 to 20 times slower, and tests that try many
// combinations of the same thing take a part of them. The plain build tries all.
#pragma once

namespace troupe::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace troupe::test
