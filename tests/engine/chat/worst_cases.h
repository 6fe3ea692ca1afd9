// Templates that do as much as they can with every construct of the language: each needs more than a rendering may have
// of time or memory, or is done at once.
#pragma once

#include <array>

namespace troupe::engine::chat::test {

struct WorstCase {
  const char* name;
  const char* source;
};

// Of a large text `t`, and what is looked for in it, `q`, which nearly matches everywhere.
#define TROUPE_TEXTS "{% set t='a'*4000000 %}{% set q='a'*1000000 ~ 'b' %}"
#define TROUPE_OFTEN "{% for i in range(100000) %}"
#define TROUPE_OFTEN_END "{% endfor %}"
#define TROUPE_EVER "{% for i in range(100000) %}{% for j in range(100000) %}"
#define TROUPE_EVER_END "{% endfor %}{% endfor %}"
#define TROUPE_ITEMS "{% set l=range(100000)|list %}"
#define TROUPE_WORDS "{% set w=('a '*100000).split() %}"

inline constexpr std::array kWorstCases = {
    // Methods of texts.
    WorstCase{"strip of characters",
              "{% set t='a'*4000000 %}{% set q='b'*2000000 ~ 'a' %}" TROUPE_OFTEN "{% set x=t.strip(q)|length "
              "%}" TROUPE_OFTEN_END},
    WorstCase{"strip of few", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.strip('bcdefga') %}" TROUPE_OFTEN_END},
    WorstCase{"strip of space", "{% set t=' '*4000000 ~ 'a' %}" TROUPE_OFTEN "{% set x=t.strip() %}" TROUPE_OFTEN_END},
    WorstCase{"lines", "{% set t='\n'*5000000 %}{% set x=t.splitlines() %}"},
    WorstCase{"few lines", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.splitlines() %}" TROUPE_OFTEN_END},
    WorstCase{"split", "{% set x=('a '*4000000).split() %}"},
    WorstCase{"split by a text", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.split(q) %}" TROUPE_OFTEN_END},
    WorstCase{"split from the right", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.rsplit(q) %}" TROUPE_OFTEN_END},
    WorstCase{"split from the right into many", "{% set x=('ab'*4000000).rsplit('b') %}"},
    WorstCase{"startswith a list",
              "{% set q='a'*1000000 ~ 'b' %}{% set t='a'*1000001 %}{{ t.startswith([q]*100000) }}"},
    WorstCase{"startswith a list, in a loop", "{% set q='a'*1000000 ~ 'b' %}{% set t='a'*1000001 %}" TROUPE_OFTEN
                                              "{% set x=t.startswith([q]*100000) %}" TROUPE_OFTEN_END},
    WorstCase{"endswith a list", "{% set q='b' ~ 'a'*1000000 %}{% set t='a'*1000001 %}{{ t.endswith([q]*100000) }}"},
    WorstCase{"removeprefix", "{% set q='a'*4000000 ~ 'b' %}{% set t='a'*4000001 %}" TROUPE_EVER
                              "{% set x=t.removeprefix(q) %}" TROUPE_EVER_END},
    WorstCase{"replace that grows", "{% set x=('a'*1000000).replace('a', 'b'*1000000) %}"},
    WorstCase{"replace of nothing", "{% set x=('a'*4000000).replace('', 'b'*1000) %}"},
    WorstCase{"replace", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.replace(q, '') %}" TROUPE_OFTEN_END},
    WorstCase{"replace again and again", "{% set n=namespace(t='ab') %}" TROUPE_OFTEN
                                         "{% set n.t=n.t.replace('a', 'aa').replace('b', 'ab') %}" TROUPE_OFTEN_END},
    WorstCase{"upper", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.upper() %}" TROUPE_OFTEN_END},
    WorstCase{"title", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.title() %}" TROUPE_OFTEN_END},
    WorstCase{"swapcase of letters of two bytes",
              "{% set t='\xC3\xA4'*2000000 %}" TROUPE_OFTEN "{% set x=t.swapcase() %}" TROUPE_OFTEN_END},
    WorstCase{"find", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.find(q) %}" TROUPE_OFTEN_END},
    WorstCase{"rfind", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.rfind(q) %}" TROUPE_OFTEN_END},
    WorstCase{"find of a short text", "{% set t='ab'*2000000 %}{% set q='ab'*1000 ~ 'b' %}" TROUPE_OFTEN
                                      "{% set x=t.find(q) %}" TROUPE_OFTEN_END},
    WorstCase{"find of a text as long as the C library compares",
              "{% set t='a'*4000000 %}{% set q='a'*100 ~ 'b' ~ 'a'*100 %}" TROUPE_OFTEN
              "{% set x=t.find(q) %}" TROUPE_OFTEN_END},
    WorstCase{"find in a part", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.find('b', 1) %}" TROUPE_OFTEN_END},
    WorstCase{"count", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.count('a') %}" TROUPE_OFTEN_END},
    WorstCase{"join of nothing", "{% set l=['']*1000000 %}" TROUPE_OFTEN "{% set x=''.join(l) %}" TROUPE_OFTEN_END},
    WorstCase{"join that grows", "{% set x=('a'*100000).join('b'*100000) %}"},
    WorstCase{"isalpha", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.isalpha() %}" TROUPE_OFTEN_END},
    WorstCase{"islower", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.islower() %}" TROUPE_OFTEN_END},
    WorstCase{"partition", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.partition(q) %}" TROUPE_OFTEN_END},
    WorstCase{"rpartition", TROUPE_TEXTS TROUPE_OFTEN "{% set x=t.rpartition('b') %}" TROUPE_OFTEN_END},
    WorstCase{"center", "{% set x='a'.center(10**9) %}"},
    WorstCase{"ljust", TROUPE_EVER "{% set x='a'.ljust(30000000) %}" TROUPE_EVER_END},
    WorstCase{"zfill", TROUPE_EVER "{% set x='a'.zfill(10000000) %}" TROUPE_EVER_END},
    WorstCase{"zfill of nothing", TROUPE_TEXTS TROUPE_EVER "{% set x=t.zfill(1) %}" TROUPE_EVER_END},
    WorstCase{"format of braces", "{% set x=('{0}'*10000).format('a'*10000) %}"},
    WorstCase{"format without end",
              "{% set t='a'*8000000 ~ '{' %}" TROUPE_OFTEN "{% set x=t.format() %}" TROUPE_OFTEN_END},
    // Operators.
    WorstCase{"a text many times", "{% set x='x'*10**9 %}"},
    WorstCase{"a text more times than there are bytes", "{% set x='x'*9000000000000000000 %}"},
    WorstCase{"a text many times, often", TROUPE_EVER "{% set x='x'*20000000 %}" TROUPE_EVER_END},
    WorstCase{"nothing many times", TROUPE_EVER "{% set x=''*9000000000000000000 %}" TROUPE_EVER_END},
    WorstCase{"a list many times", "{% set x=[1]*10**9 %}"},
    WorstCase{"a list many times, often", TROUPE_EVER "{% set x=[1]*100000 %}" TROUPE_EVER_END},
    WorstCase{"concatenation that doubles",
              "{% set n=namespace(t='a') %}" TROUPE_OFTEN "{% set n.t=n.t~n.t %}" TROUPE_OFTEN_END},
    WorstCase{"concatenation that grows",
              "{% set n=namespace(t='a'*10000) %}" TROUPE_EVER "{% set n.t=n.t~'a' %}" TROUPE_EVER_END},
    WorstCase{"sum of texts", "{% set t='a'*20000000 %}" TROUPE_EVER "{% set x=t+t %}" TROUPE_EVER_END},
    WorstCase{"sum of lists", "{% set n=namespace(l=[1]) %}" TROUPE_OFTEN "{% set n.l=n.l+n.l %}" TROUPE_OFTEN_END},
    WorstCase{"sum of lists, by one",
              "{% set n=namespace(l=[1]) %}" TROUPE_OFTEN "{% set n.l=n.l+[1] %}" TROUPE_OFTEN_END},
    WorstCase{"power", TROUPE_EVER "{% set x=3**39 %}" TROUPE_EVER_END},
    WorstCase{"power that grows", "{% set x=10**10**10 %}"},
    WorstCase{"product that grows", "{% set n=namespace(x=3) %}" TROUPE_OFTEN "{% set n.x=n.x*n.x %}" TROUPE_OFTEN_END},
    WorstCase{"power of reals", TROUPE_EVER "{% set x=1.0000001**1e300 %}" TROUPE_EVER_END},
    WorstCase{"format of a wide field", TROUPE_EVER "{% set x='%1000d'%1 %}" TROUPE_EVER_END},
    WorstCase{"format too wide", "{% set x='%1000000000d'%1 %}"},
    WorstCase{"format of a long text", "{% set t='a'*20000000 %}" TROUPE_EVER "{% set x='%.1s'%t %}" TROUPE_EVER_END},
    WorstCase{"format of a name",
              "{% set t='%('~'a'*20000000~')s' %}" TROUPE_EVER "{% set x=t%{'b':1} %}" TROUPE_EVER_END},
    WorstCase{"format of flags", "{% set t='%'~'-'*20000000~'s' %}" TROUPE_EVER "{% set x=t%'b' %}" TROUPE_EVER_END},
    WorstCase{"in a text", TROUPE_TEXTS TROUPE_EVER "{% set x=q in t %}" TROUPE_EVER_END},
    WorstCase{"in a list", TROUPE_ITEMS TROUPE_EVER "{% set x=-1 in l %}" TROUPE_EVER_END},
    WorstCase{"in a list of texts",
              TROUPE_TEXTS "{% set l=[t~'a']*100000 %}" TROUPE_EVER "{% set x=t~'b' in l %}" TROUPE_EVER_END},
    WorstCase{"comparison of texts",
              "{% set a='a'*20000000~'a' %}{% set b='a'*20000000~'b' %}" TROUPE_EVER "{% set x=a<b %}" TROUPE_EVER_END},
    WorstCase{"equality of texts", "{% set a='a'*20000000~'a' %}{% set b='a'*20000000~'b' %}" TROUPE_EVER
                                   "{% set x=a==b %}" TROUPE_EVER_END},
    WorstCase{"equality of lists",
              TROUPE_ITEMS "{% set m=range(100000)|list %}" TROUPE_EVER "{% set x=l==m %}" TROUPE_EVER_END},
    WorstCase{"equality of lists that share",
              "{% set n=namespace(a=[1],b=[1]) %}{% for i in range(150) %}{% set n.a=[n.a,n.a] %}{% set n.b=[n.b,n.b] "
              "%}{% endfor %}{{ n.a==n.b }}"},
    WorstCase{"order of lists that share",
              "{% set n=namespace(a=[1],b=[1]) %}{% for i in range(150) %}{% set n.a=[n.a,n.a] %}{% set n.b=[n.b,n.b] "
              "%}{% endfor %}{{ n.a<n.b }}"},
    WorstCase{"character of a text", "{% set t='a'*40000000 %}" TROUPE_EVER "{% set x=t[-1] %}" TROUPE_EVER_END},
    WorstCase{"slice of a text", "{% set t='a'*20000000 %}" TROUPE_EVER "{% set x=t[1:] %}" TROUPE_EVER_END},
    WorstCase{"slice of a text, back", "{% set t='a'*20000000 %}" TROUPE_EVER "{% set x=t[::-1] %}" TROUPE_EVER_END},
    WorstCase{"slice of a text, by steps",
              "{% set t='a'*20000000 %}" TROUPE_EVER "{% set x=t[::1000000] %}" TROUPE_EVER_END},
    WorstCase{"slice of a list", TROUPE_ITEMS TROUPE_EVER "{% set x=l[:] %}" TROUPE_EVER_END},
    WorstCase{"member that is not there",
              "{% set d={} %}{% set t='a'*20000000 %}" TROUPE_EVER "{% set x=d[t] %}" TROUPE_EVER_END},
    WorstCase{"element that is not there",
              TROUPE_ITEMS "{% set d={} %}" TROUPE_EVER "{% set x=d[l] %}" TROUPE_EVER_END},
    // Filters.
    WorstCase{"indent", "{% set t='a\n'*100000 %}{% set x=t|indent('b'*100000) %}"},
    WorstCase{"indent of empty lines", "{% set t='\n'*4000000 %}{% set x=t|indent(1, blank=true) %}"},
    WorstCase{"indent, wide", "{% set x='a'|indent(10**12) %}"},
    WorstCase{"escape", "{% set t='<'*4000000 %}" TROUPE_EVER "{% set x=t|e %}" TROUPE_EVER_END},
    WorstCase{"truncate", "{% set t='a'*40000000 %}" TROUPE_EVER "{% set x=t|truncate(10) %}" TROUPE_EVER_END},
    WorstCase{"wordcount", "{% set t='a '*20000000 %}" TROUPE_EVER "{% set x=t|wordcount %}" TROUPE_EVER_END},
    WorstCase{"title of words", "{% set t='a '*4000000 %}" TROUPE_EVER "{% set x=t|title %}" TROUPE_EVER_END},
    WorstCase{"int of many digits", "{% set t='1'*40000000 %}" TROUPE_EVER "{% set x=t|int %}" TROUPE_EVER_END},
    WorstCase{"int of space", "{% set t=' '*40000000 %}" TROUPE_EVER "{% set x=t|int %}" TROUPE_EVER_END},
    WorstCase{"float of many digits", "{% set t='1'*4300 %}" TROUPE_EVER "{% set x=t|float %}" TROUPE_EVER_END},
    WorstCase{"round", TROUPE_EVER "{% set x=1e300|round(30) %}" TROUPE_EVER_END},
    WorstCase{"tojson", TROUPE_WORDS TROUPE_EVER "{% set x=w|tojson %}" TROUPE_EVER_END},
    WorstCase{"tojson of escapes",
              "{% set t='\xC3\xA4'*5000000 %}" TROUPE_EVER "{% set x=t|tojson(ensure_ascii=true) %}" TROUPE_EVER_END},
    WorstCase{"tojson of what shares",
              "{% set n=namespace(x=[1]) %}{% for i in range(150) %}{% set n.x=[n.x,n.x] %}"
              "{% endfor %}{{ n.x|tojson }}"},
    WorstCase{"tojson with a wide indent",
              "{% set n=namespace(x=[1]) %}{% for i in range(150) %}{% set n.x=[n.x] %}{% endfor %}"
              "{{ n.x|tojson(indent='a'*1000000) }}"},
    WorstCase{
        "tojson with sorted keys",
        "{% set d=dict(range(100000)|map('string')|map('list')|map('batch',9)|map('list')|list|batch(2)) %}" TROUPE_EVER
        "{% set x=d|tojson(sort_keys=true) %}" TROUPE_EVER_END},
    WorstCase{"text of what shares",
              "{% set n=namespace(x=[1]) %}{% for i in range(150) %}{% set n.x=[n.x,n.x] %}{% endfor %}{{ n.x }}"},
    WorstCase{"text of a text", "{% set t=['\"\\''*5000000] %}" TROUPE_EVER "{% set x=t|string %}" TROUPE_EVER_END},
    WorstCase{"list", TROUPE_ITEMS TROUPE_EVER "{% set x=l|list %}" TROUPE_EVER_END},
    WorstCase{"list of a text", "{% set x=('a'*4000000)|list %}"},
    WorstCase{"reverse", TROUPE_ITEMS TROUPE_EVER "{% set x=l|reverse %}" TROUPE_EVER_END},
    WorstCase{"join of items", TROUPE_ITEMS TROUPE_EVER "{% set x=l|join %}" TROUPE_EVER_END},
    WorstCase{"join by a path", "{% set l=[{'a':1}]*100000 %}{% set p='a.'*100000 %}{% set x=l|join('', p) %}"},
    WorstCase{"sort", "{% set l=range(100000)|reverse|list %}" TROUPE_EVER "{% set x=l|sort %}" TROUPE_EVER_END},
    WorstCase{"sort of long texts", "{% set t='a'*10000000 %}{% set l=[t~'b',t~'a']*10000 %}{{ l|sort|length }}"},
    WorstCase{"sort by attributes", "{% set l=[{'a':1,'b':2}]*100000 %}" TROUPE_EVER
                                    "{% set x=l|sort(attribute='a,b,a,b') %}" TROUPE_EVER_END},
    WorstCase{"sort by many attributes", "{% set l=[{'a':1}]*100000 %}{% set x=l|sort(attribute='a,'*100000) %}"},
    WorstCase{"unique", TROUPE_ITEMS TROUPE_EVER "{% set x=l|unique|list %}" TROUPE_EVER_END},
    WorstCase{"unique of long texts", "{% set l=['a'*10000000]*100000 %}{{ l|unique|list|length }}"},
    WorstCase{"unique of tuples", "{% set a=(1,)*100000 %}{% set l=[a]*100000 %}{{ l|unique|list|length }}"},
    WorstCase{"max", "{% set t='A'*10000000 %}{% set l=[t]*100000 %}{{ l|max|length }}"},
    WorstCase{"sum", "{% set l=[[1]]*100000 %}{{ l|sum(start=[])|length }}"},
    WorstCase{"batch", TROUPE_ITEMS TROUPE_EVER "{% set x=l|batch(1)|list %}" TROUPE_EVER_END},
    WorstCase{"batch, filled", TROUPE_EVER "{% set x=[1]|batch(100000, 0)|list %}" TROUPE_EVER_END},
    WorstCase{"slices", TROUPE_EVER "{% set x=[1]|slice(100000)|list %}" TROUPE_EVER_END},
    WorstCase{"groupby", "{% set l=[{'a':1}]*100000 %}" TROUPE_EVER "{% set x=l|groupby('a') %}" TROUPE_EVER_END},
    WorstCase{"map", TROUPE_ITEMS TROUPE_EVER "{% set x=l|map('string')|map('upper')|list %}" TROUPE_EVER_END},
    WorstCase{"map by an attribute", "{% set l=[{'a':{'a':1}}]*100000 %}" TROUPE_EVER
                                     "{% set x=l|map(attribute='a.a.a.a')|list %}" TROUPE_EVER_END},
    WorstCase{"map by an unknown filter", "{% set x=[1]|map('a'*40000000)|list %}"},
    WorstCase{"select", TROUPE_ITEMS TROUPE_EVER "{% set x=l|select('even')|list %}" TROUPE_EVER_END},
    WorstCase{"selectattr", "{% set l=[{'a':1}]*100000 %}" TROUPE_EVER
                            "{% set x=l|selectattr('a','in',[2]*100000)|list %}" TROUPE_EVER_END},
    WorstCase{"dictsort",
              "{% set d={} %}" TROUPE_ITEMS "{% set d=dict(l|map('batch',1)|map('list')) %}{{ d|dictsort|length }}"},
    WorstCase{"first of a text", "{% set t='a'*40000000 %}" TROUPE_EVER "{% set x=t|first %}" TROUPE_EVER_END},
    WorstCase{"last of a dictionary",
              TROUPE_ITEMS "{% set d=namespace(l|batch(2))  %}" TROUPE_EVER "{% set x=l|last %}" TROUPE_EVER_END},
    WorstCase{"length", "{% set t='a'*40000000 %}" TROUPE_EVER "{% set x=t|length %}" TROUPE_EVER_END},
    WorstCase{"attr", "{% set t='a'*40000000 %}" TROUPE_EVER "{% set x={}|attr(t) %}" TROUPE_EVER_END},
    // Tests.
    WorstCase{"is upper", "{% set t='A'*40000000 %}" TROUPE_EVER "{% set x=t is upper %}" TROUPE_EVER_END},
    WorstCase{"is sameas", "{% set a='a'*20000000 %}{% set b='a'*20000000 %}" TROUPE_EVER
                           "{% set x=a is sameas b %}" TROUPE_EVER_END},
    WorstCase{"is in", TROUPE_ITEMS TROUPE_EVER "{% set x=-1 is in l %}" TROUPE_EVER_END},
    // Dictionaries, scopes, names.
    WorstCase{"keys that are integers", "{% set l=range(100000)|batch(2)|list %}{% set d=dict(l) %}" TROUPE_EVER
                                        "{% set x=d[i] %}" TROUPE_EVER_END},
    WorstCase{"a dictionary again and again",
              "{% set l=range(100000)|batch(2)|list %}" TROUPE_EVER "{% set x=dict(l) %}" TROUPE_EVER_END},
    WorstCase{"keys that are tuples",
              "{% set k=(1,)*100000 %}{% set d={k:1} %}" TROUPE_EVER "{% set x=d[(1,)*100000] %}" TROUPE_EVER_END},
    WorstCase{"keys that are not numbers", "{% set n=1e308*10-1e308*10 %}{% set d=dict([(n,1)]*100000) %}" TROUPE_EVER
                                           "{% set x=d[n] %}" TROUPE_EVER_END},
    WorstCase{"long keys",
              "{% set t='a'*10000000 %}{% set d={t:1} %}" TROUPE_EVER "{% set x=d.get(t~'') %}" TROUPE_EVER_END},
    WorstCase{"views",
              "{% set d=dict(range(100000)|batch(2)|list) %}" TROUPE_EVER "{% set x=d.items() %}" TROUPE_EVER_END},
    WorstCase{"loop over a dictionary", "{% set d=dict(range(100000)|batch(2)|list) %}" TROUPE_EVER
                                        "{% for k in d %}{% endfor %}" TROUPE_EVER_END},
    WorstCase{"index in a list", TROUPE_ITEMS TROUPE_EVER "{% set x=l.count(-1) %}" TROUPE_EVER_END},
    WorstCase{"a namespace with itself",
              "{% set n=namespace() %}{% set n.n=n %}{% set n.l=[n] %}" TROUPE_EVER "{% set n.l=[n.l,n] %}{% set x=n.l "
              "%}" TROUPE_EVER_END "{{ n.l }}"},
    // Statements.
    WorstCase{"loops", TROUPE_EVER TROUPE_EVER_END},
    WorstCase{"loops of literals", TROUPE_EVER "{{ 1 }}{{ 1 }}" TROUPE_EVER_END},
    WorstCase{"a loop with a filter", TROUPE_OFTEN "{% for j in range(100000) if j<0 %}{% endfor %}" TROUPE_OFTEN_END},
    WorstCase{"a loop over a text", "{% for c in 'a'*4000000 %}{% endfor %}"},
    WorstCase{"a range too long", "{% for c in range(10**9) %}{% endfor %}"},
    WorstCase{"ranges", TROUPE_EVER "{% set x=range(100000) %}" TROUPE_EVER_END},
    WorstCase{"macros in macros",
              "{% macro m(n) %}{% for i in range(99) %}{{ m(n) }}{% endfor %}{% endmacro %}{{ m(1) }}"},
    WorstCase{"two calls in each",
              "{% macro m(n) %}{% if n>0 %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(50) }}"},
    WorstCase{"macros that write",
              "{% macro m(n) %}{% if n>0 %}{{ m(n-1) }}{{ m(n-1) }}{% else %}{{ 'a'*1000000 }}"
              "{% endif %}{% endmacro %}{% set x=m(30) %}"},
    WorstCase{"callers",
              "{% macro m(n) %}{% if n>0 %}{% call m(n-1) %}a{% endcall %}{{ caller() }}{{ caller() }}"
              "{% endif %}{% endmacro %}{% for i in range(100000) %}{% call m(20) %}b{% endcall %}{% endfor %}"},
    WorstCase{"macros made in a loop", "{% set n=namespace(l=[]) %}" TROUPE_OFTEN
                                       "{% macro m() %}{{ i }}{% endmacro %}{% set n.l=n.l+[m] %}" TROUPE_OFTEN_END},
    WorstCase{"set blocks", TROUPE_EVER "{% set x %}{{ 'a'*1000000 }}{% endset %}" TROUPE_EVER_END},
    WorstCase{"filter blocks", TROUPE_EVER "{% filter upper %}{{ 'a'*1000000 }}{% endfilter %}" TROUPE_EVER_END},
    WorstCase{"with", TROUPE_EVER "{% with a=[1]*1000,b=2 %}{% endwith %}" TROUPE_EVER_END},
    WorstCase{"cycles", TROUPE_EVER "{% set x=loop.cycle(1,2) %}{% set y=loop.changed([1]*1000) %}" TROUPE_EVER_END},
    WorstCase{"loops that are kept",
              "{% set n=namespace(l=[]) %}" TROUPE_EVER "{% set n.l=[loop,n.l] %}" TROUPE_EVER_END},
    WorstCase{"output", TROUPE_EVER "{{ 'a'*1000000 }}" TROUPE_EVER_END},
    WorstCase{"output in small parts", TROUPE_EVER "abcdefgh" TROUPE_EVER_END},
    WorstCase{"an input in many parts", "{% set t=messages[0].content*1000000 %}{{ t.replace('', 'x') }}"},
    WorstCase{"an input in many parts, kept",
              "{% set t=messages[0].content*1000000 %}" TROUPE_EVER "{% set x=t.replace('', 'x') %}" TROUPE_EVER_END},
    WorstCase{"a message", "{{ raise_exception('a'*60000000) }}"},
    WorstCase{"the time", "{% set t='%B'*30000000 %}" TROUPE_EVER "{% set x=strftime_now(t) %}" TROUPE_EVER_END},
    WorstCase{"the time, often", "{% set t='%B'*500 %}" TROUPE_EVER "{% set x=strftime_now(t) %}" TROUPE_EVER_END},
    WorstCase{"joiners", TROUPE_EVER "{% set j=joiner('a') %}{% set x=j()~j() %}" TROUPE_EVER_END},
};

#undef TROUPE_TEXTS
#undef TROUPE_OFTEN
#undef TROUPE_OFTEN_END
#undef TROUPE_EVER
#undef TROUPE_EVER_END
#undef TROUPE_ITEMS
#undef TROUPE_WORDS

}  // namespace troupe::engine::chat::test
