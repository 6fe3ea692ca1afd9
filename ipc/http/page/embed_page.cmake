# Writes the C++ source that holds the page: cmake -D PAGE=index.html -D OUT=page_data.cpp -P embed_page.cmake
#
# With the page go the hashes of its script and its style for the Content-Security-Policy, so that a browser runs these
# bytes and no others, and the hash of all of it for the ETag.
file(READ "${PAGE}" text)
file(READ "${PAGE}" hex HEX)

# Sets `out` to what stands between `open` and `close`; both must occur once.
function(part_between open close out)
  foreach(mark "${open}" "${close}")
    string(FIND "${text}" "${mark}" first)
    string(FIND "${text}" "${mark}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
      message(FATAL_ERROR "${PAGE} must have ${mark} once: its hash is computed over what stands there")
    endif()
  endforeach()
  string(LENGTH "${open}" length)
  string(FIND "${text}" "${open}" begin)
  string(FIND "${text}" "${close}" end)
  math(EXPR begin "${begin} + ${length}")
  math(EXPR length "${end} - ${begin}")
  string(SUBSTRING "${text}" ${begin} ${length} part)
  set(${out} "${part}" PARENT_SCOPE)
endfunction()

# Sets `out` to the SHA-256 of `bytes` in base64: 64 hexadecimal digits, three of which are two of base64.
function(sha256_base64 bytes out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(SHA256 digits "${bytes}")
  string(APPEND digits "00")
  set(base64 "")
  foreach(i RANGE 0 63 3)
    string(SUBSTRING "${digits}" ${i} 3 three)
    math(EXPR high "0x${three} >> 6")
    math(EXPR low "0x${three} & 63")
    string(SUBSTRING "${alphabet}" ${high} 1 high)
    string(SUBSTRING "${alphabet}" ${low} 1 low)
    string(APPEND base64 "${high}${low}")
  endforeach()
  string(SUBSTRING "${base64}" 0 43 base64)  # 256 bits; the rest is padding
  set(${out} "${base64}=" PARENT_SCOPE)
endfunction()

part_between("<script>" "</script>" script)
part_between("<style>" "</style>" style)
sha256_base64("${script}" script_hash)
sha256_base64("${style}" style_hash)
string(SHA256 etag "${text}")
string(SUBSTRING "${etag}" 0 32 etag)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")

file(WRITE "${OUT}.new" "// Written by ipc/http/page/embed_page.cmake.
#include \"ipc/http/page/page.h\"

namespace troupe::ipc::http {

const unsigned char kPageBytes[] = {
${hex}};
const std::size_t kPageSize = sizeof(kPageBytes);
const std::string_view kPageScriptHash = \"${script_hash}\";
const std::string_view kPageStyleHash = \"${style_hash}\";
const std::string_view kPageETag = \"\\\"${etag}\\\"\";

}  // namespace troupe::ipc::http
")
file(COPY_FILE "${OUT}.new" "${OUT}" ONLY_IF_DIFFERENT)
file(TOUCH "${OUT}")
