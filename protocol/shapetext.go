package protocol

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// shapes holds a program per API and version.
type shapes struct {
	byKey [maxKey + 1][][]op // [key][version - Min]
}

func (s *shapes) program(key, version int16) []op {
	api := lookup(key)
	if api == nil || !api.Speaks(version) {
		return nil
	}
	return s.byKey[key][version-api.Min]
}

// compileShapes reads a table of shapes (the notation is explained in
// shapes/requests.txt). The table is ours, so a fault in it is a panic.
func compileShapes(text string) *shapes {
	s := new(shapes)
	for _, block := range strings.Split(text, "\n\n") {
		head, fields, _ := strings.Cut(block, "\n")
		number, name, _ := strings.Cut(head, " ")
		key, err := strconv.Atoi(number)
		if err != nil {
			continue // the comment at the top
		}
		api := lookup(int16(key))
		if api == nil || !strings.EqualFold(api.Name, name) {
			panic(fmt.Sprintf("shapes: no API %q", head))
		}
		p := shapeParser{text: fields}
		list := p.fields(0)
		for v := api.Min; v <= api.Max; v++ {
			c := shapeCompiler{version: v, flexible: api.Flexible(v)}
			prog, _ := c.structure(list)
			if prog == nil {
				prog = []op{} // a body without fields; nil is no such version
			}
			s.byKey[key] = append(s.byKey[key], prog)
		}
	}
	return s
}

// shapeField is one field as written.
type shapeField struct {
	name           string
	kind           byte // a letter of the notation, or '[' or '{'
	sub            []shapeField
	versions, null versionRange
	anyNull        bool // null in some version
	tag            int  // -1 for none
}

type versionRange struct{ from, to int16 }

var always = versionRange{0, math.MaxInt16}
var never = versionRange{1, 0}

func (r versionRange) has(v int16) bool { return r.from <= v && v <= r.to }

type shapeParser struct{ text string }

func (p *shapeParser) peek() byte {
	if p.text == "" {
		return 0
	}
	return p.text[0]
}

func (p *shapeParser) next() byte {
	c := p.peek()
	if c == 0 {
		panic("shapes: unexpected end")
	}
	p.text = p.text[1:]
	return c
}

// word takes characters up to one of stop or the end.
func (p *shapeParser) word(stop string) string {
	n := strings.IndexAny(p.text, stop)
	if n < 0 {
		n = len(p.text)
	}
	w := p.text[:n]
	p.text = p.text[n:]
	return w
}

// fields reads fields up to the closing bracket, or to the end for 0.
func (p *shapeParser) fields(closing byte) (list []shapeField) {
	for {
		p.text = strings.TrimLeft(p.text, " \n")
		if p.peek() == closing {
			if closing != 0 {
				p.next()
			}
			return list
		}
		list = append(list, p.field())
	}
}

func (p *shapeParser) field() shapeField {
	name := p.word(":")
	p.next()
	f := p.typed()
	f.name = name
	f.null, f.versions, f.tag = never, always, -1
	for {
		switch p.peek() {
		case '?':
			p.next()
			f.null, f.anyNull = p.versions(), true
		case '#':
			p.next()
			f.tag = atoi(p.word("?@ \n]}"))
		case '@':
			p.next()
			f.versions = p.versions()
		default:
			return f
		}
	}
}

func (p *shapeParser) typed() shapeField {
	switch c := p.next(); c {
	case '{':
		return shapeField{kind: '{', sub: p.fields('}')}
	case '[':
		if len(p.text) > 1 && p.text[1] == ']' { // an array of a plain type
			element := shapeField{kind: p.next(), versions: always, null: never, tag: -1}
			p.next()
			return shapeField{kind: '[', sub: []shapeField{element}}
		}
		return shapeField{kind: '[', sub: p.fields(']')}
	default:
		return shapeField{kind: c}
	}
}

func (p *shapeParser) versions() versionRange {
	w := p.word("?#@ \n]}")
	if w == "" {
		return always
	}
	if from, open := strings.CutSuffix(w, "+"); open {
		return versionRange{int16(atoi(from)), math.MaxInt16}
	}
	from, to, ranged := strings.Cut(w, "-")
	if !ranged {
		to = from
	}
	return versionRange{int16(atoi(from)), int16(atoi(to))}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("shapes: " + err.Error())
	}
	return n
}

type shapeCompiler struct {
	version  int16
	flexible bool
}

// structure compiles a structure, whose tagged fields come last, and gives the
// least number of bytes that it takes.
func (c shapeCompiler) structure(list []shapeField) (prog []op, least int) {
	var tags []tagOp
	for _, f := range list {
		if !f.versions.has(c.version) {
			continue
		}
		ops, n := c.one(f)
		if f.tag >= 0 {
			tags = append(tags, tagOp{uint32(f.tag), ops})
			continue
		}
		prog, least = appendOps(prog, ops), least+n
	}
	if c.flexible {
		prog, least = append(prog, op{kind: opTags, tags: tags, name: "tags"}), least+1
	}
	return prog, least
}

// appendOps appends, joining neighbours of fixed size.
func appendOps(prog, ops []op) []op {
	for _, o := range ops {
		if n := len(prog); n > 0 && o.kind == opFixed && prog[n-1].kind == opFixed {
			prog[n-1].size += o.size
			prog[n-1].name = o.name
			continue
		}
		prog = append(prog, o)
	}
	return prog
}

// widths are the bytes of the plain types.
var widths = map[byte]int{'b': 1, 'h': 2, 'i': 4, 'l': 8, 'f': 8, 'u': 16}

// one compiles one field.
func (c shapeCompiler) one(f shapeField) (ops []op, least int) {
	o := op{name: f.name, compact: c.flexible, nullable: f.null.has(c.version), pointer: f.anyNull}
	switch f.kind {
	case 's':
		o.kind, least = opString, 2
	case 'y', 'r':
		o.kind, least = opBytes, 4
	case '[':
		o.kind, least = opArray, 4
		c.element(&o, f)
	case '{':
		sub, n := c.structure(f.sub)
		if !o.nullable {
			return sub, n
		}
		o.kind, o.sub, o.memory = opMaybe, sub, memoryOf(f.sub)
		return []op{o}, 1
	default:
		o.kind, o.size = opFixed, widths[f.kind]
		return []op{o}, o.size
	}
	if c.flexible {
		least = 1
	}
	return []op{o}, least
}

func (c shapeCompiler) element(o *op, f shapeField) {
	if plain := f.sub[0]; plain.name == "" {
		o.sub, o.size = c.one(plain)
		o.fixed = o.sub[0].kind == opFixed
		o.memory = memoryOfField(plain)
	} else {
		o.sub, o.size = c.structure(f.sub)
		o.memory = memoryOf(f.sub)
		o.fixed = len(o.sub) == 1 && o.sub[0].kind == opFixed
	}
	o.memory += o.memory / 8
}

// memoryOf estimates, from above, the Go structure that kmsg has for a
// structure: the fields of all versions, the tags, and room for the fields of
// versions that we do not speak.
func memoryOf(list []shapeField) int {
	n := 8 + 32
	for _, f := range list {
		n += (memoryOfField(f) + 3) &^ 3
	}
	return n
}

func memoryOfField(f shapeField) int {
	switch f.kind {
	case 's':
		return 16
	case 'y', 'r', '[':
		return 24
	case '{':
		return memoryOf(f.sub)
	}
	return widths[f.kind]
}
