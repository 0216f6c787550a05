import type { Base } from "./base";

export interface Line {
  price: number;
  label(): string;
}

export type Amount = number | undefined;

export enum State {
  Open,
  Closed,
}

export abstract class Order<T extends Line> implements Base {
  private lines: T[] = [];

  constructor(readonly number: number) {}

  abstract label(): string;

  public async total(): Promise<number> {
    return this.lines.reduce((sum, line) => sum + line.price, 0);
  }
}

export namespace Shop {
  export function open(): void {}
}

export const half = (amount: number): number => amount / 2;

declare function ring(times: number): void;
