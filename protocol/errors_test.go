package protocol

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Every constant of codes.go has its name in the table and the other way
// round, and the table is Kafka 3.9's: -1 to 127 without a gap.
func TestEveryCodeHasAName(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && spec.Type != nil {
			declared += len(spec.Names)
		}
		return true
	})
	codes := Codes()
	if declared != 129 || len(codes) != 129 || codes[0] != -1 || codes[128] != 127 {
		t.Fatalf("%d declared, %d named, %d to %d", declared, len(codes), codes[0], codes[len(codes)-1])
	}
	seen := map[string]bool{}
	for _, c := range codes {
		name := c.Error()
		if seen[name] || name != strings.ToUpper(name) || !c.Known() {
			t.Errorf("code %d: name %q", c, name)
		}
		seen[name] = true
	}
	if got := Code(200).Error(); got != "ERROR_200" || Code(200).Known() {
		t.Errorf("unknown code: %q", got)
	}
}

func TestCodeOfFindsEveryCode(t *testing.T) {
	for _, c := range Codes() {
		err := Error(int16(c))
		if c == None {
			if err != nil || CodeOf(nil) != 0 {
				t.Errorf("0 is %v, nil is %d", err, CodeOf(nil))
			}
			continue
		}
		wrapped := fmt.Errorf("orders-3: %w", fmt.Errorf("append: %w", err))
		joined := errors.Join(errors.New("another"), wrapped)
		for _, e := range []error{err, wrapped, joined} {
			if got := CodeOf(e); got != int16(c) || !errors.Is(e, c) {
				t.Errorf("CodeOf(%v) = %d, want %d", e, got, c)
			}
		}
	}
}

type coded struct{ error }

func (coded) KafkaCode() int16 { return 87 }

func TestCodeOfForeignErrors(t *testing.T) {
	errDisk, errGap := errors.New("disk"), errors.New("gap")
	m := Mapping{{errDisk, ErrKafkaStorageError}, {errGap, ErrOutOfOrderSequenceNumber}, {ErrInvalidRecord, ErrCorruptMessage}}
	for _, c := range []struct {
		err         error
		plain, with Code
	}{
		{nil, None, None},
		{errors.New("x"), ErrUnknownServerError, ErrUnknownServerError},
		{fmt.Errorf("a: %w", errDisk), ErrUnknownServerError, ErrKafkaStorageError},
		{errGap, ErrUnknownServerError, ErrOutOfOrderSequenceNumber},
		{fmt.Errorf("a: %w", coded{errors.New("b")}), ErrInvalidRecord, ErrInvalidRecord},
		{fmt.Errorf("a: %w", ErrInvalidRecord), ErrInvalidRecord, ErrCorruptMessage},
		{context.DeadlineExceeded, ErrRequestTimedOut, ErrRequestTimedOut},
		{fmt.Errorf("a: %w", ErrNotController), ErrNotController, ErrNotController},
	} {
		if got := CodeOf(c.err); got != int16(c.plain) {
			t.Errorf("CodeOf(%v) = %d, want %d", c.err, got, c.plain)
		}
		if got := m.CodeOf(c.err); got != int16(c.with) {
			t.Errorf("Mapping.CodeOf(%v) = %d, want %d", c.err, got, c.with)
		}
	}
}
