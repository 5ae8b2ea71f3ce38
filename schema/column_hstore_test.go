package schema

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestHstore(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`"a"=>"1"`, `{"a":"1"}`},
		{`"a"=>"1", "b"=>NULL`, `{"a":"1","b":null}`},
		{`"k\"\\"=>"=>, "`, `{"k\"\\":"=>, "}`},
		{"\"a\"=>\"l\nö\x01\"", `{"a":"l\u000aö\u0001"}`},
		{`{"a": "1"}`, ""},
		{`"just text"`, ""},
		{`"a"=>1`, ""},
		{`"a"=>"1",`, ""},
		{`"a"=>"1" `, ""},
		{`"a"=>"1`, ""},
		{`"a`, ""},
		{`"a\`, ""},
		{`null`, ""},
	} {
		got, ok := appendHstoreJSON(nil, []byte(c.text))
		if ok != (c.want != "") || string(got) != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.text, got, ok, c.want)
		}
	}
}

func FuzzHstore(f *testing.F) {
	for _, s := range []string{`"a"=>"1"`, `"a"=>NULL, "b"=>""`, `"k\"\\"=>"\\"`, `{"a": 1}`, `"a"=>"1`, `""=>""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := appendHstoreJSON([]byte("x"), []byte(text))
		if got[0] != 'x' || !ok && len(got) != 1 {
			t.Fatalf("%q: dst became %q", text, got)
		}
		if ok && utf8.ValidString(text) && !json.Valid(got[1:]) {
			t.Errorf("%q became %q", text, got[1:])
		}
	})
}
