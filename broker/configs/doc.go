// Package configs keeps the configs that live in the metadata store, those of
// topics and the dynamic ones of brokers, as this broker acts on them: loaded
// at the start, then renewed by the change notifications that every broker of
// the cluster writes. It owns no key and no validator; those are config's.
package configs
